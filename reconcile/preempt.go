package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

const (
	preemptions = 20           // of one decision at most; the next one goes on
	replans     = 8            // of one node: each leaves out a victim that the log would refuse
	refusals    = 16           // of all nodes together, for one need
	roomSoon    = model.Minute // room that stopping instances give back within it is waited for instead
	stopLate    = 30 * model.Second
)

// preempting is what one decision knows of preemption.
type preempting struct {
	done      int
	lower     map[int]bool // by class: whether anything runs in a less important one, or in the same where that is fair
	mayTake   map[[2]model.GroupID]*model.Error
	allowance map[model.GroupID]int // stops of ready instances that a group's budgets allow now
	none      map[*field]string     // why it helped nobody of a field; the next ones of it needn't look
}

// hole is room on a node that a preemption would make.
type hole struct {
	view    *nodeView
	victims []*fsm.Instance
	ranks   []int  // victims of each class, the most important class first
	why     string // no hole: why not
}

// preempt makes room for a need that fits nowhere, by stopping less important instances of one node, or says why that
// doesn't help. Where any node has room without it, or will have in a moment, nothing is stopped. All of it is one
// group of commands.
func (p *pass) preempt(n *need, why *unplaced) *unplaced {
	if why == nil || n.look || why.code != model.CodeNoMemory && why.code != model.CodeNoPorts {
		return why
	}
	f := p.fieldOf(n.group, n.version)
	text, quiet := p.noPreemption(n, f)
	if text == "" {
		best := p.bestHole(n, f)
		for tries := 1; best.why == ""; tries++ {
			refusal := p.takeHole(n, f, best)
			if refusal == nil {
				return nil
			}
			if tries == refusals {
				best.why = "what would make room can't be stopped: " + refusal.Message
			} else {
				best = p.bestHole(n, f) // without what was refused
			}
		}
		text = best.why
	}
	failed := *why
	failed.preempt = text
	if !quiet {
		failed.message += "; " + text
		if n.home == "" && len(n.first) == 0 {
			p.preempts.none[f] = text
		}
	}
	return &failed
}

// noPreemption says why nothing is stopped for a need, before any node is looked at. quiet: that is so common that only
// a person who asks hears of it.
func (p *pass) noPreemption(n *need, f *field) (why string, quiet bool) {
	switch {
	case !p.lowerRuns(n.group):
		return "nothing less important runs that could make room", true
	case p.state().Hold.Active:
		return "while so many nodes are silent nothing is stopped to make room", false
	case p.state().NextOf(model.ByPreemption) > p.in.Now:
		p.plan.wakeAt(p.state().NextOf(model.ByPreemption))
		return fmt.Sprintf("so much was stopped to make room that the next stop is allowed in %s",
			p.state().NextOf(model.ByPreemption).Sub(p.in.Now)), false
	case p.preempts.done >= preemptions:
		p.plan.wakeAt(p.in.Now + 1)
		return "others come first", true
	case n.home == "" && p.preempts.none[f] != "":
		return p.preempts.none[f], false
	}
	return "", false
}

// whole is the message with why nothing is stopped for it.
func (u *unplaced) whole() string {
	if u.preempt == "" || strings.Contains(u.message, u.preempt) {
		return u.message
	}
	return u.message + "; " + u.preempt
}

// lowerRuns reports whether anything runs that is less important than a group, or as important where the class lets it
// be taken.
func (p *pass) lowerRuns(g *groupView) bool {
	if p.preempts.lower == nil {
		p.preempts = preempting{lower: map[int]bool{}, mayTake: map[[2]model.GroupID]*model.Error{},
			allowance: map[model.GroupID]int{}, none: map[*field]string{}}
	}
	known, ok := p.preempts.lower[g.class]
	if ok {
		return known
	}
	s := p.state()
	fair := g.class < len(s.Classes) && s.Classes[g.class].PreemptEqual == model.PreemptFair
	for id, row := range s.Groups.All() {
		name, _ := id.Split()
		job, ok := s.Jobs.Get(name)
		if !ok || row.Alive == 0 {
			continue
		}
		rank := s.ClassRank(job.Class)
		known = known || rank > g.class || fair && rank == g.class && name != g.job.Name
	}
	p.preempts.lower[g.class] = known
	return known
}

// bestHole compares the nodes: the fewest victims of the most important class, then of the next, then the newest, then
// by hash.
func (p *pass) bestHole(n *need, f *field) *hole {
	var best *hole
	var reasons hindrances
	for _, v := range p.candidates().views {
		if v.detour || n.home != "" && v.node.ID != n.home || !p.suitable(n, f, v) {
			continue
		}
		h := p.holeOn(n, f, v)
		if h.soon() {
			v.soonTaken += f.claim.MemoryBytes
			return h
		}
		switch {
		case h.why != "":
			reasons.add(h.why)
		case best == nil || h.better(best, f):
			best = h
		}
	}
	if best == nil {
		return &hole{why: reasons.text()}
	}
	return best
}

// suitable reports whether only room is lacking on a node.
func (p *pass) suitable(n *need, f *field, v *nodeView) bool {
	if code := f.exclude(v); code != model.CodeNoMemory && code != model.CodeNoPorts {
		return false
	}
	for _, filter := range hardFilters {
		if code := filter(f, v); code != "" && code != model.CodeNoMemory && code != model.CodeNoPorts {
			return false
		}
	}
	var replaced *fsm.Node
	if n.replaces != nil {
		replaced = p.node(n.replaces.Node)
	}
	return n.home != "" || !f.repeats(v.node, replaced)
}

// better orders holes. It is a strict order, so that the same state gives the same choice.
func (h *hole) better(other *hole, f *field) bool {
	tie := func(h *hole) uint64 { return hash(string(f.group.id), string(h.view.node.ID)) }
	return cmp.Or(slices.Compare(h.ranks, other.ranks), cmp.Compare(oldest(other.victims), oldest(h.victims)),
		cmp.Compare(tie(h), tie(other)), cmp.Compare(h.view.node.ID, other.view.node.ID)) < 0
}

func oldest(victims []*fsm.Instance) uint64 {
	at := ^uint64(0)
	for _, v := range victims {
		at = min(at, v.Marks.CreatedIndex)
	}
	return at
}

// takeHole tries the preemption: the stops and the placement stand or fall together. What the log refuses for one
// victim's sake is tried again without it.
func (p *pass) takeHole(n *need, f *field, h *hole) *model.Error {
	v := h.view
	row, _ := p.state().Groups.Get(n.group.id)
	id := fsm.DeriveInstanceID(p.in.State.Moment(), p.in.State.Cluster.History().Lineage(), n.group.id, n.slot, row.Placed)
	c := &fsm.InstancePlace{ID: id, Group: n.group.id, Slot: n.slot, Version: n.version, Node: v.node.ID, Cause: n.cause,
		NodeVersion: v.node.Version}
	if n.replaces != nil {
		c.Replaces = n.replaces.ID
	}
	stops := slices.Clip(n.first)
	for _, victim := range h.victims {
		c.Awaits = append(c.Awaits, victim.ID)
		stops = append(stops, &fsm.InstanceStop{ID: victim.ID, Cause: model.CausePreempted, By: string(id)})
	}
	ports, ok := f.portsBeside(v, id, c.Awaits)
	refusal := model.Refuse(model.CodeNoPorts, "node %s has no port left in its range", v.node.Name)
	if c.Ports = ports; ok {
		refusal = p.plan.try(n.group.subject(), append(stops, c)...)
	}
	if refusal != nil {
		p.blameVictim(h, c, n.first, refusal)
		return refusal
	}
	p.changed(v.node.ID)
	f.countSpread(v, 1)
	f.countDistinct(v.node, 1)
	p.preempts.done++
	clear(p.preempts.allowance)
	clear(p.preempts.mayTake)
	return nil
}

// blameVictim finds the victim for whose sake a preemption was refused and leaves it out from now on; if it was none,
// the whole node.
func (p *pass) blameVictim(h *hole, c *fsm.InstancePlace, first []fsm.Command, refusal *model.Error) {
	v := h.view
	if len(v.spared) < replans {
		for i := range h.victims {
			part := *c
			part.Awaits = c.Awaits[:i+1]
			group := slices.Clip(first)
			for _, id := range part.Awaits {
				group = append(group, &fsm.InstanceStop{ID: id, Cause: model.CausePreempted, By: string(c.ID)})
			}
			// Tried on a fork: too few victims are refused for the room, one that may not stop for a reason of its own.
			scratch := p.state().NewDraft(p.in.Now)
			if again := scratch.Try(append(group, &part)...); again != nil && again.Code == refusal.Code {
				v.spare(h.victims[i].ID, refusal)
				p.wakeForRate(h.victims[i].Group)
				return
			}
		}
	}
	v.shut = refusal
}

// spare leaves an instance out of further preemptions of this decision.
func (v *nodeView) spare(id model.InstanceID, refusal *model.Error) {
	if v.spared == nil {
		v.spared = map[model.InstanceID]*model.Error{}
	}
	v.spared[id] = refusal
}

// noteWaiting records for every preemptor what it waits for.
func (p *pass) noteWaiting() {
	for _, g := range p.groups {
		for _, slot := range g.open {
			for _, inst := range [...]*fsm.Instance{slot.holder, slot.successor} {
				if inst.WaitsForRoom() {
					p.wait(inst, model.CodeStopping,
						"it waits until "+joinIDs(inst.Links.Awaits)+" have really stopped: it gets their room", "")
				}
			}
		}
	}
}

func joinIDs(ids []model.InstanceID) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = string(id)
	}
	return strings.Join(texts, ", ")
}

// hindrances counts why nodes are no help, in the order in which the reasons were found.
type hindrances []struct {
	why   string
	nodes int
}

func (t *hindrances) add(why string) {
	for i := range *t {
		if (*t)[i].why == why {
			(*t)[i].nodes++
			return
		}
	}
	*t = append(*t, struct {
		why   string
		nodes int
	}{why, 1})
}

func (t hindrances) text() string {
	if len(t) == 0 {
		return "stopping less important instances helps nowhere"
	}
	parts := make([]string, len(t))
	for i, x := range t {
		parts[i] = fmt.Sprintf("on %d %s", x.nodes, x.why)
	}
	return "stopping less important instances helps nowhere: " + strings.Join(parts, ", ")
}
