package reconcile

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// groupView is what a pass knows about one group that may need something.
type groupView struct {
	id       model.GroupID
	row      *fsm.Group
	spec     *model.GroupSpec // the policy: counts, limits and roles; they also apply to instances of older versions
	job      *fsm.Job
	deploy   *fsm.Deployment // the job's latest deployment, running or ended; nil if the job has none
	restored bool            // a restore is not confirmed yet
	class    int             // position of the job's class in the order of classes; the smallest is served first
	rows     []instanceRow   // all instances of the group, in order of slot
	open     []*slotView     // slots that may need something, in order of slot
	// number of slots that are not in open; each of these has one ready instance and needs nothing
	quiet   int
	every   []*slotView // all slots that have or had an instance; made at the first call of slots
	fields  []*field    // nodes where the group's instances could run, one field for each version that was asked for
	retries map[retryKey]retry
	// slotsThatDiffer are the slots that may differ from a slot that never had an instance, in order. It is nil until
	// first use.
	slotsThatDiffer []int
}

// slotView is one slot: its holder, its successor, and the instances that are stopping.
type slotView struct {
	n         int
	alike     int // number of following slots that, like this one, never had an instance
	holder    *fsm.Instance
	successor *fsm.Instance
	extra     []*fsm.Instance // wanted instances other than the holder, until order has chosen the successor
	leaving   []*fsm.Instance // instances that should stop and are not confirmed stopped
	last      *fsm.Instance   // the youngest instance that should not run any more
	dropped   bool            // scale-down stops the holder, or has stopped it
}

// findGroups finds the groups that may need something: they have too few or too many instances, an instance is stopping
// or should stop, a rollout is running, or instances are on nodes that are out of service or report troubles. Indexes
// list these cases, so no other group is looked at. findGroups also collects the draining instances and the instances
// whose eviction is requested.
func (p *pass) findGroups() {
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
	for n := range s.OutOfService() {
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
		if row.Role != model.RoleSystem || row.Count == 0 || p.systemUnsettled(row) {
			found[id] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		if row, ok := s.Groups.Get(id); ok {
			p.groups = append(p.groups, &groupView{id: id, row: row})
		}
	}
}

// viewGroups fills in the views of the groups that were found, and sorts them by class. It drops groups whose job or
// policy no longer exists.
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

// order chooses holder and successor if two instances of the slot are wanted. If one of the two replaces the other, it
// is the successor. Otherwise the older one is the holder. More than two are never wanted (S7).
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
	v.extra = nil
}

// older orders instances by age, the oldest first, then by id.
func older(a, b *fsm.Instance) int {
	return cmp.Or(cmp.Compare(a.Marks.CreatedIndex, b.Marks.CreatedIndex), cmp.Compare(a.Marks.Created, b.Marks.Created),
		cmp.Compare(a.ID, b.ID))
}

// subject returns the group's name as a Refusal's Subject.
func (g *groupView) subject() string { return "group/" + string(g.id) }

// pinned reports whether a slot's old instance must be confirmed stopped before another one may hold the slot.
func (g *groupView) pinned() bool {
	return g.spec.OneHolder()
}

// stopFirst reports whether an instance that must leave is stopped before its replacement is made. order is the spec's
// order for evictions or for updates.
func (g *groupView) stopFirst(order model.Order) bool {
	return g.pinned() || order == model.OrderStopFirst
}

func (g *groupView) system() bool { return g.row.Role == model.RoleSystem }

func (g *groupView) rolling() bool { return g.deploy != nil && !g.deploy.Status.Ended() }

// renewing reports whether instances of other versions are to be replaced. They are replaced during a rollout. In a
// system group they are also replaced afterwards, because some nodes took no instances during the rollout.
func (g *groupView) renewing() bool {
	// a restore may have lost the entries that ended or reverted a rollout, so rollouts wait until it is confirmed
	return !g.restored && (g.rolling() || g.system() && g.deploy != nil && g.deploy.Status == model.DeploymentSucceeded)
}

// distrusted reports whether no more instances may get the group's version, because its rollout failed or its canaries
// are not promoted yet.
func (p *pass) distrusted(g *groupView) bool {
	return g.deploy != nil && g.deploy.Status == model.DeploymentFailed || p.canarying(g)
}

// version returns the version that a slot's next instance should have. old is the slot's last instance, or nil. While
// the group's version is distrusted, only its canaries get it. All other instances get the stable version. Without a
// stable version, they get the version of old if that is lower, or else the group's.
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
