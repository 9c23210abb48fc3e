package reconcile

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// groupView is what a pass knows of one group that may need something.
type groupView struct {
	id       model.GroupID
	row      *fsm.Group
	spec     *model.GroupSpec // its policy: counts, limits and roles also of older instances
	job      *fsm.Job
	deploy   *fsm.Deployment // the latest of the job, ended or not; nil if there is none
	restored bool            // a restore is not confirmed
	class    int             // position in the order of classes: a smaller one is served first
	rows     []rosterRow     // of all its instances, in order of slot
	open     []*slotView     // those slots where something may have to be done, in order of slot
	// the other slots with an instance: it is ready, of the version that is wanted, and stays where it is
	quiet   int
	every   []*slotView // all slots, once somebody asks; see slots
	fields  []*field    // where instances of it could go, one for each version asked for
	retries map[retryKey]retry
	apart   []int // slots that differ from others that never had an instance, in order; nil: not looked up yet
}

// slotView is one slot: who holds it, who takes over, who is on the way out.
type slotView struct {
	n         int
	more      int // slots that follow and, like this one, never had an instance
	holder    *fsm.Instance
	successor *fsm.Instance
	extra     []*fsm.Instance // more than a holder and a successor
	leaving   []*fsm.Instance // not wanted any more, not confirmed stopped
	last      *fsm.Instance   // the youngest that isn't wanted any more
	dropped   bool            // scale-down takes it
}

// survey finds the groups that may need something: those whose sums say so, those with an instance that is not simply
// running, those being rolled out, and those on nodes that are to be emptied. All others are left alone and not even
// looked at: the state has an index of each of these.
func (p *pass) survey() {
	s := p.state()
	found := map[model.GroupID]bool{}
	for inst := range s.Departing() {
		found[inst.Group] = true
		if inst.Desired == model.DesiredDraining {
			p.kills = append(p.kills, inst.ID)
		}
		if inst.Eviction.Requested {
			p.marked = append(p.marked, inst.ID)
		}
	}
	for n := range s.OffDuty() {
		if n.Placed.Instances == 0 || n.Intent == model.IntentCordoned && s.Settings.EvictOn != model.EvictOnCordon {
			continue
		}
		for inst := range s.InstancesOn(n.ID) {
			found[inst.Group] = true
		}
	}
	for _, id := range p.troubled {
		for inst := range s.InstancesOn(id) {
			found[inst.Group] = true
		}
	}
	for d := range s.OpenDeployments() {
		if job, ok := s.Jobs.Get(d.Job); ok && job.Deployment == d.ID {
			for id := range s.GroupsOf(d.Job) {
				found[id] = true
			}
		}
	}
	for id, row := range s.Unsettled() {
		atRest := row.Ready == row.Running && row.Alive == row.Running
		if row.Role != model.RoleSystem || row.Count == 0 || !atRest || p.systemUnsettled(row) {
			found[id] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		if row, ok := s.Groups.Get(id); ok {
			p.groups = append(p.groups, &groupView{id: id, row: row})
		}
	}
}

func (p *pass) deploymentOf(g model.GroupID) *fsm.Deployment {
	name, _ := g.Split()
	job, ok := p.state().Jobs.Get(name)
	if !ok {
		return nil
	}
	d, _ := p.state().Deployments.Get(job.Deployment)
	return d
}

// viewGroups fills in the views of the groups that were found, the first class first.
func (p *pass) viewGroups() {
	s := p.state()
	views := p.groups[:0]
	for _, g := range p.groups {
		name, _ := g.id.Split()
		job, ok := s.Jobs.Get(name)
		spec, known := s.Policy(g.id)
		if !ok || !known {
			continue
		}
		g.job, g.spec = job, spec
		g.class = s.ClassRank(job.Class)
		g.deploy, _ = s.Deployments.Get(job.Deployment)
		g.restored = s.Unconfirmed
		p.viewSlots(g)
		views = append(views, g)
	}
	slices.SortStableFunc(views, func(a, b *groupView) int { return cmp.Compare(a.class, b.class) })
	p.groups = views
}

func (v *slotView) take(inst *fsm.Instance) {
	switch {
	case inst.Desired == model.DesiredRunning && v.holder == nil:
		v.holder = inst
		return
	case inst.Desired == model.DesiredRunning:
		v.extra = append(v.extra, inst)
		return
	}
	if !inst.Terminal() {
		v.leaving = append(v.leaving, inst)
	}
	if v.last == nil || older(v.last, inst) < 0 {
		v.last = inst
	}
}

// order tells the holder from the successor: the successor replaces the holder. Instances in extra beyond these two
// should not exist.
func (v *slotView) order() {
	if len(v.extra) == 0 {
		return
	}
	v.extra = append(v.extra, v.holder)
	slices.SortFunc(v.extra, older)
	v.holder, v.successor = v.extra[0], v.extra[1]
	if v.holder.Links.Replaces == v.successor.ID {
		v.holder, v.successor = v.successor, v.holder
	}
	v.extra = v.extra[2:]
}

// older orders instances by age, the oldest first, then by id.
func older(a, b *fsm.Instance) int {
	return cmp.Or(cmp.Compare(a.Marks.CreatedIndex, b.Marks.CreatedIndex), cmp.Compare(a.Marks.Created, b.Marks.Created),
		cmp.Compare(a.ID, b.ID))
}

// subject names the group in refusals.
func (g *groupView) subject() string { return "group/" + string(g.id) }

// pinned reports whether a slot's old instance must be confirmed stopped before another one may hold it: a local volume
// has one holder, and so has an identity that is kept.
func (g *groupView) pinned() bool {
	return g.spec.OneHolder()
}

// stopFirst reports whether an instance that must leave is stopped before its replacement is made.
func (g *groupView) stopFirst(order model.Order) bool {
	return g.pinned() || order == model.OrderStopFirst
}

func (g *groupView) system() bool { return g.row.Role == model.RoleSystem }

// rolling reports whether a new version is on its way.
func (g *groupView) rolling() bool { return g.deploy != nil && !g.deploy.Status.Ended() }

// renewing reports whether instances of other versions are to be replaced: a new version is on its way or, of a system
// group, has arrived, and nodes that took nothing new then are back. The rollouts of a restored snapshot wait for its
// confirmation: they may have ended, or been reverted, in the entries that are lost.
func (g *groupView) renewing() bool {
	return !g.restored && (g.rolling() || g.system() && g.deploy != nil && g.deploy.Status == model.DeploymentSucceeded)
}

// distrusted reports whether the group's version is not to spread: it failed, or its canaries are not accepted yet.
func (p *pass) distrusted(g *groupView) bool {
	return g.deploy != nil && g.deploy.Status == model.DeploymentFailed || p.canarying(g)
}

// version is what an instance that takes over from old should run; old is nil for a slot that nobody had. A version
// that isn't trusted gets no slots but those of its canaries: all others take the one that succeeded last.
func (p *pass) version(g *groupView, old *fsm.Instance) uint64 {
	if !p.distrusted(g) {
		return g.row.Version
	}
	canary := old != nil && (old.Version == g.row.Version || old.Marks.StopCause == model.CauseRollout)
	if p.canarying(g) && canary && p.current(g)+g.outdated(math.MaxInt) <= g.spec.Update.Canary {
		return g.row.Version
	}
	if stable, ok := p.state().StableVersion(g.id); ok {
		return stable
	}
	if old != nil && old.Version < g.row.Version {
		if _, ok := p.state().Spec(g.id, old.Version); ok {
			return old.Version
		}
	}
	return g.row.Version
}
