package reconcile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// nodeInstances contains the instances of a node that matter to preemption. It is made at first use, and again after
// the node's view has changed.
type nodeInstances struct {
	moves   int32           // nodeView.moves when the lists were made
	running []*fsm.Instance // instances that may be preempted if class, role and budget allow it, the newest first
	soon    []*fsm.Instance // instances that stop soon, and whose room no preemptor waits for
}

func (p *pass) crowdOf(v *nodeView) *nodeInstances {
	if v.crowd != nil && v.crowd.moves == v.moves {
		return v.crowd
	}
	c := &nodeInstances{moves: v.moves}
	awaited := map[model.InstanceID]bool{}
	for inst := range p.state().InstancesOn(v.node.ID) {
		for _, id := range inst.Links.Awaits {
			awaited[id] = true
		}
	}
	for inst := range p.state().InstancesOn(v.node.ID) {
		switch {
		case inst.Status.Observed == model.ObservedStopped || inst.WaitsForRoom() || awaited[inst.ID]:
		case inst.Desired == model.DesiredRunning && inst.Marks.CreatedIndex <= p.in.State.Index:
			// placed before this decision
			c.running = append(c.running, inst)
		case inst.Desired != model.DesiredRunning && p.stopsSoon(inst):
			c.soon = append(c.soon, inst)
		}
	}
	slices.SortFunc(c.running, func(a, b *fsm.Instance) int { return older(b, a) })
	v.crowd = c
	return c
}

// stopsSoon reports whether the room of a stopping instance is worth waiting for: its grace ends within roomSoon, and
// did not end more than stopLate ago. If so, stopsSoon also asks for a decision when stopLate has passed.
func (p *pass) stopsSoon(inst *fsm.Instance) bool {
	end := p.state().StopDue(inst)
	soon := end.Sub(p.in.Now) <= roomSoon && p.in.Now < end.Add(stopLate)
	if soon {
		p.plan.wakeAt(end.Add(stopLate))
	}
	return soon
}

// soon reports whether the node will have room without a preemption.
func (h *preemption) soon() bool { return h.view != nil && h.victims == nil && h.why != "" }

// preemptionOn returns the best preemption on one node. If there is none, the result says why.
func (p *pass) preemptionOn(n *need, f *field, v *nodeView) *preemption {
	c := p.crowdOf(v)
	if who := p.roomComes(f, v, c); who != nil {
		return &preemption{view: v,
			why: fmt.Sprintf("room comes free on node %s when %s has stopped", v.node.Name, joinIDs(who))}
	}
	if v.shut != nil {
		return &preemption{why: "it is refused (" + string(v.shut.Code) + ")"}
	}
	lower, held := p.lowerOn(n, v, c)
	lacks := f.claim.MemoryBytes - v.free()
	must, ok := p.portHolders(f, v, lower)
	victims := pick(p.levels(lower), must, lacks)
	if !ok || victims == nil || len(victims) == 0 {
		return &preemption{why: whyNoHole(len(lower), held)}
	}
	h := &preemption{view: v, victims: victims, ranks: make([]int, len(p.state().Classes)+1)}
	for _, victim := range victims {
		h.ranks[p.classOf(victim)]++
	}
	return h
}

func whyNoHole(lower int, held []*model.Error) string {
	switch {
	case len(held) > 0:
		return "what would have to stop must stay (" + string(held[0].Code) + ")"
	case lower > 0:
		return "there is too little that it may take"
	}
	return "there is nothing that it may take"
}

// roomComes returns the instances in c.soon if their stops free enough room on the node; nil if they don't.
func (p *pass) roomComes(f *field, v *nodeView, c *nodeInstances) []model.InstanceID {
	free := v.free() - v.soonTaken
	var who []model.InstanceID
	for _, inst := range c.soon {
		free += inst.Claims.Resources.MemoryBytes
		who = append(who, inst.ID)
	}
	if len(who) == 0 || free < f.claim.MemoryBytes {
		return nil
	}
	for _, port := range f.spec.Ports {
		owner, taken := p.state().PortOwner(v.node.ID, port.Static)
		if port.Static != 0 && taken && !slices.Contains(who, owner) {
			return nil
		}
	}
	return who
}

// lowerOn lists the instances on a node that a need may preempt, the newest first. Their volumes and roles let them
// leave, and the budgets allow all of these stops together. held contains the refusals for instances that the need's
// group may take but that must stay.
func (p *pass) lowerOn(n *need, v *nodeView, c *nodeInstances) (lower []*fsm.Instance, held []*model.Error) {
	used := map[model.GroupID]int{}
	for _, inst := range c.running {
		if n.replaces != nil && inst.ID == n.replaces.ID || p.mayTake(n.group.id, inst.Group) != nil {
			continue
		}
		refusal := v.spared[inst.ID]
		if refusal == nil {
			refusal = p.state().Movable(inst)
		}
		if refusal == nil && inst.Ready() {
			if used[inst.Group]++; used[inst.Group] > p.allowed(inst.Group) {
				refusal, _ = p.state().CheckBudget(inst, model.CausePreempted)
				if refusal == nil {
					refusal = model.Refuse(model.CodeBudgetMinReady, "%s can't lose so many", inst.Group)
				}
				p.wakeForRate(inst.Group)
			}
		}
		if refusal != nil {
			held = append(held, refusal)
			continue
		}
		lower = append(lower, inst)
	}
	return lower, held
}

// wakeForRate asks for a decision when a rate may allow another stop of the group. That is when the oldest stop leaves
// the window of a budget's rate, or of the rate of preemption.
func (p *pass) wakeForRate(group model.GroupID) {
	for _, l := range p.state().Ledgers(group) {
		p.wakeWhenLeft(l.Stops, l.Budget.Window)
	}
	if l, ok := p.state().Actors.Get(model.ByPreemption); ok {
		p.wakeWhenLeft(l.Stops, p.state().Settings.ActorRate(model.ByPreemption).Window)
	}
}

// wakeWhenLeft asks for a decision when the oldest stop that is still in the window leaves the window.
func (p *pass) wakeWhenLeft(stops []model.Time, window model.Duration) {
	for _, at := range stops {
		if left := at.Add(window); left > p.in.Now {
			p.plan.wakeAt(left)
			return
		}
	}
}

func (p *pass) mayTake(taker, owner model.GroupID) *model.Error {
	key := [2]model.GroupID{taker, owner}
	refusal, known := p.preempts.mayTake[key]
	if !known {
		refusal = p.state().MayTakeFrom(taker, owner)
		p.preempts.mayTake[key] = refusal
	}
	return refusal
}

// allowed returns how many ready instances of a group may stop now under its budgets.
func (p *pass) allowed(id model.GroupID) int {
	n, known := p.preempts.allowance[id]
	if known {
		return n
	}
	for i, l := range p.state().Ledgers(id) {
		if left := l.Allowed(p.in.Now); i == 0 || left < n {
			n = left
		}
	}
	p.preempts.allowance[id] = n
	return n
}

func (p *pass) classOf(inst *fsm.Instance) int {
	name, _ := inst.Group.Split()
	s := p.state()
	job, ok := s.Jobs.Get(name)
	if !ok {
		return len(s.Classes)
	}
	return s.ClassRank(job.Class)
}

// portHolders lists the instances on a node that use a static port that the need wants. ok is false if one of them may
// not be preempted.
func (p *pass) portHolders(f *field, v *nodeView, lower []*fsm.Instance) (must []*fsm.Instance, ok bool) {
	for _, port := range f.spec.Ports {
		owner, taken := p.state().PortOwner(v.node.ID, port.Static)
		if port.Static == 0 || !taken {
			continue
		}
		i := slices.IndexFunc(lower, func(inst *fsm.Instance) bool { return inst.ID == owner })
		if i < 0 {
			return nil, false
		}
		if !slices.Contains(must, lower[i]) {
			must = append(must, lower[i])
		}
	}
	return must, true
}

// level is the instances of one class on a node.
type level struct {
	rank    int
	members []*fsm.Instance // the newest first
	below   int64           // memory of the instances in all less important levels, in bytes
}

// levels groups instances by class, the least important class first.
func (p *pass) levels(lower []*fsm.Instance) []level {
	var all []level
	for _, inst := range lower {
		rank := p.classOf(inst)
		i := slices.IndexFunc(all, func(l level) bool { return l.rank == rank })
		if i < 0 {
			all = append(all, level{rank: rank})
			i = len(all) - 1
		}
		all[i].members = append(all[i].members, inst)
	}
	slices.SortFunc(all, func(a, b level) int { return cmp.Compare(b.rank, a.rank) })
	sum := int64(0)
	for i := range all {
		all[i].below = sum
		sum += memoryOf(all[i].members)
	}
	return all
}

func memoryOf(all []*fsm.Instance) int64 {
	sum := int64(0)
	for _, inst := range all {
		sum += inst.Claims.Resources.MemoryBytes
	}
	return sum
}

// pick chooses victims to free memory; lacks is how many bytes are missing. The victims include all instances in must.
// pick takes as few as possible of the most important class, then of the next class, and so on. From each class it
// takes the instances that leave the least to free in the classes below. In the least important class it prefers the
// newest. It returns nil if all instances together are not enough.
func pick(all []level, must []*fsm.Instance, lacks int64) []*fsm.Instance {
	chosen := slices.Clone(must)
	lacks -= memoryOf(must)
	for i := len(all) - 1; i >= 0 && lacks > 0; i-- {
		l := all[i]
		left := slices.DeleteFunc(slices.Clone(l.members), func(inst *fsm.Instance) bool {
			return slices.Contains(must, inst)
		})
		below := memoryBelow(all[:i], must)
		if lacks <= below {
			continue
		}
		some := fewest(left, lacks-below, below == 0)
		if some == nil {
			return nil
		}
		chosen = append(chosen, some...)
		lacks -= memoryOf(some)
	}
	if lacks > 0 {
		return nil
	}
	return chosen
}

func memoryBelow(all []level, must []*fsm.Instance) int64 {
	sum := int64(0)
	for _, l := range all {
		sum += memoryOf(l.members)
		for _, inst := range must {
			if slices.Contains(l.members, inst) {
				sum -= inst.Claims.Resources.MemoryBytes
			}
		}
	}
	return sum
}

// fewest returns the smallest number of members whose memory adds up to at least enough, in bytes; nil if all members
// together have less. It takes the largest. But if newest is true, and there are at most 64 members, it takes the
// newest ones with which the same number suffices. members must be sorted, the newest first.
func fewest(members []*fsm.Instance, enough int64, newest bool) []*fsm.Instance {
	bySize := slices.Clone(members)
	slices.SortStableFunc(bySize, func(a, b *fsm.Instance) int {
		return cmp.Compare(b.Claims.Resources.MemoryBytes, a.Claims.Resources.MemoryBytes)
	})
	count, sum := 0, int64(0)
	for ; sum < enough; count++ {
		if count == len(bySize) {
			return nil
		}
		sum += bySize[count].Claims.Resources.MemoryBytes
	}
	if !newest || len(members) > 64 {
		return bySize[:count]
	}
	var chosen []*fsm.Instance
	for _, inst := range members {
		if len(chosen) == count {
			break
		}
		with := append(slices.Clip(chosen), inst)
		rest := slices.DeleteFunc(slices.Clone(bySize), func(x *fsm.Instance) bool { return slices.Contains(with, x) })
		if memoryOf(with)+memoryOf(rest[:min(count-len(with), len(rest))]) >= enough {
			chosen = with
		}
	}
	return chosen
}
