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
	preemptions = 20                // upper bound of preemptions in one decision; the next decision continues
	replans     = 8                 // after this many refused victims on one node, preemption skips the node
	refusals    = 16                // upper bound of refused tries for one need, on all nodes together
	roomSoon    = model.Minute      // a need waits for room that stopping instances will free within this time
	stopLate    = 30 * model.Second // a need does not wait for an instance whose stop is this late
)

// preempting stores what one decision has found out about preemption.
type preempting struct {
	done      int             // number of preemptions that are planned
	lower     map[asking]bool // results of lowerRuns
	mayTake   map[[2]model.GroupID]*model.Error
	allowance map[model.GroupID]int // by group: number of ready instances that its budgets allow to stop now
	none      map[*field]string     // by field: why preemption doesn't help, so that other needs of the field needn't try
}

// asking is what lowerRuns depends on: the class of a group, and its job if the class may preempt its equals.
type asking struct {
	class int
	job   model.JobName
}

// preemption is the room that stopping some instances of a node would make, or the reason why there is not enough.
type preemption struct {
	view    *nodeView
	victims []*fsm.Instance
	ranks   []int  // number of victims in each class, the most important class first
	why     string // why the node can't get enough room; "" if it can
}

// preempt meets a need that lacks memory or ports by stopping less important instances of one node. It returns nil if
// the need is met. Otherwise it returns why, to which it adds the reason why preemption doesn't help. It returns why
// unchanged if why is nil or has another code, or if n.look is set.
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
				best = p.bestHole(n, f) // bestHole now skips the refused victim or node
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

// noPreemption returns why nothing is stopped for a need, if that is known without looking at nodes, and "" otherwise.
// quiet is true for reasons so common that only explanations show them.
func (p *pass) noPreemption(n *need, f *field) (why string, quiet bool) {
	switch {
	case !p.lowerRuns(n.group):
		return "nothing less important runs that could make room", true
	case p.state().Hold.Active:
		return "while so many nodes are silent nothing is stopped to make room", false
	case p.state().NextOf(model.ByPreemption) > p.in.Now:
		p.plan.wakeAt(p.state().NextOf(model.ByPreemption))
		return fmt.Sprintf("so much was stopped to make room that the next stop is allowed in %s",
			p.state().NextOf(model.ByPreemption).Left(p.in.Now)), false
	case p.preempts.done >= preemptions:
		p.plan.wakeAt(p.in.Now + 1)
		return "others come first", true
	case n.home == "" && p.preempts.none[f] != "":
		return p.preempts.none[f], false
	}
	return "", false
}

// whole returns the message, followed by the reason why preemption doesn't help.
func (u *unplaced) whole() string {
	if u.preempt == "" || strings.Contains(u.message, u.preempt) {
		return u.message
	}
	return u.message + "; " + u.preempt
}

// lowerRuns reports whether any instance runs that is less important than the group. If the group's class may preempt
// its equals, an equally important instance of another job is enough.
func (p *pass) lowerRuns(g *groupView) bool {
	if p.preempts.lower == nil {
		p.preempts = preempting{lower: map[asking]bool{}, mayTake: map[[2]model.GroupID]*model.Error{},
			allowance: map[model.GroupID]int{}, none: map[*field]string{}}
	}
	s, who := p.state(), asking{class: g.class}
	class, _, _ := s.Class(g.job.Class)
	fair := class.PreemptEqual == model.PreemptFair
	if fair {
		who.job = g.job.Name
	}
	known, ok := p.preempts.lower[who]
	if ok {
		return known
	}
	for id, row := range s.Groups.All() {
		name, _ := id.Split()
		job, ok := s.Jobs.Get(name)
		if !ok || row.Alive == 0 {
			continue
		}
		rank := s.ClassRank(job.Class)
		known = known || rank > g.class || fair && rank == g.class && name != g.job.Name
	}
	p.preempts.lower[who] = known
	return known
}

// bestHole returns the best preemption on any node. That is the one with the fewest victims of the most important
// class, then of the next class, and so on. Among equals, the one whose oldest victim is youngest is best, and then a
// hash decides. If a node will soon have room anyway, or if no preemption is possible, the result has no victims, and
// why says the reason.
//
// A node that the need's slot has claimed comes first, because the image is there. If nothing can be preempted there
// any more, another node may do.
func (p *pass) bestHole(n *need, f *field) *preemption {
	if c, ok := p.state().PullOf(n.group.id, n.slot); ok {
		if h := f.bestHole(n, c.Node); h.why == "" || h.soon() {
			return h
		}
	}
	return f.bestHole(n, n.home)
}

// bestHole is pass.bestHole on the node only, or on any node if only is "".
func (f *field) bestHole(n *need, only model.NodeID) *preemption {
	var best *preemption
	var reasons hindrances
	p := f.pass
	for _, v := range p.candidates().views {
		if v.detour || only != "" && v.node.ID != only || !p.suitable(n, f, v) {
			continue
		}
		h := p.preemptionOn(n, f, v)
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
		return &preemption{why: reasons.text()}
	}
	return best
}

// suitable reports whether a node lacks nothing but memory or ports.
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

// better reports whether h is a better choice than other. The order is strict, so that the same state always gives the
// same choice.
func (h *preemption) better(other *preemption, f *field) bool {
	tie := func(h *preemption) uint64 { return hash(string(f.group.id), string(h.view.node.ID)) }
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

// takeHole plans a preemption: the stops and the placement succeed or fail together. If the draft refuses them,
// takeHole returns the refusal, and the next try skips the victim to blame, or else the node.
func (p *pass) takeHole(n *need, f *field, h *preemption) *model.Error {
	v := h.view
	if v.node.LacksImage(f.spec) { // nothing is stopped before the image is there
		refusal := p.claim(n, f, v, true)
		if refusal != nil {
			v.shut = refusal
		}
		return refusal
	}
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

// blameVictim finds the victim that caused a refusal and excludes it from further preemptions in this decision. If no
// victim did, or if replans victims of the node are excluded already, it excludes the node.
func (p *pass) blameVictim(h *preemption, c *fsm.InstancePlace, first []fsm.Command, refusal *model.Error) {
	v := h.view
	if len(v.spared) < replans {
		for i := range h.victims {
			part := *c
			part.Awaits = c.Awaits[:i+1]
			group := slices.Clip(first)
			for _, id := range part.Awaits {
				group = append(group, &fsm.InstanceStop{ID: id, Cause: model.CausePreempted, By: string(c.ID)})
			}
			// Try with one more victim each time, on a fork. With too few victims, the draft refuses for lack of room. A victim
			// that may not stop is refused with another code.
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

// spare excludes an instance from further preemptions in this decision, and records the refusal of its stop.
func (v *nodeView) spare(id model.InstanceID, refusal *model.Error) {
	if v.spared == nil {
		v.spared = map[model.InstanceID]*model.Error{}
	}
	v.spared[id] = refusal
}

// noteWaiting records for every preemptor the instances that it waits for.
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

// hindrances counts the nodes for each reason why preemption there doesn't help, in the order found.
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
