package reconcile

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// systemUnsettled reports whether a system group without a rollout may need something. It needs nothing if it has no
// constraints, and every node has a ready instance of the group's version.
func (p *pass) systemUnsettled(g *fsm.Group) bool {
	policy, ok := p.state().Policy(g.ID)
	nodes := p.state().Nodes.Len()
	return !ok || len(policy.Constraints) > 0 || g.Ready != nodes || g.Running != nodes || p.hasStragglers(g)
}

// hasStragglers reports whether any instance of a system group should run but has a version other than the group's.
func (p *pass) hasStragglers(g *fsm.Group) bool {
	if p.seen.uniform[g.ID] == g {
		return false
	}
	for inst := range p.state().InstancesOf(g.ID) {
		if inst.Desired == model.DesiredRunning && inst.Version != g.Version {
			return true
		}
	}
	p.seen.isUniform(g)
	return false
}

// systemWant returns how many instances a system group should have on the nodes that take part in a rollout. It also
// counts a slot that is empty because the rollout stopped its instance.
func (p *pass) systemWant(g *groupView) int {
	n := 0
	for _, slot := range g.slots() {
		switch {
		case slot.holder != nil && !slot.dropped && p.takesPart(g, slot.holder),
			slot.holder == nil && slot.last != nil && slot.last.Marks.StopCause == model.CauseRollout &&
				p.takesPart(g, slot.last):
			n++
		}
	}
	return n
}

// systemNeeds lists the instances that a system group lacks: one for each suitable node that has none. A node must wait
// while its last instance stops, or until a failed one may be retried. systemNeeds also stops failed instances, so that
// new ones start on their nodes.
func (p *pass) systemNeeds(g *groupView) []*need {
	if g.row.Count == 0 {
		return nil
	}
	for _, slot := range g.slots() {
		if slot.holder != nil && p.leaveReasonOf(g, slot.holder) == leaveFailed {
			p.restartSystem(g, slot.holder)
		}
	}
	var needs []*need
	var fresh *need // the latest need for slots that never had an instance; it covers missing[begun:ended]
	next, begun, ended, missing, seats := 0, 0, 0, p.systemMissing(g), g.systemSeats()
	claims, claimed := map[model.NodeID]*fsm.Pull{}, map[int]bool{}
	for c := range p.state().PullsOf(g.id) {
		claims[c.Node], claimed[c.Slot] = c, true
	}
	for i, n := range missing {
		seat, known := seats[n.ID]
		if c, ok := claims[n.ID]; !known && ok {
			seat.slot = c.Slot
		} else if !known {
			seat.slot = g.freshSlot(&next, claimed)
		}
		version := p.version(g, seat.last)
		switch {
		case seat.busy, seat.last != nil && isFailure(seat.last.Marks.StopCause) && !p.mayRetry(g, version, seat.last):
		case seat.last != nil:
			needs = append(needs, &need{group: g, slot: seat.slot, version: version, cause: vacancyCause(seat.last), home: n.ID})
		case fresh != nil && ended == i && seat.slot == fresh.slot+fresh.more+1:
			ended, fresh.more, fresh.homes = i+1, fresh.more+1, missing[begun:i+1]
		default:
			begun, ended = i, i+1
			fresh = &need{group: g, slot: seat.slot, version: version, cause: model.CauseScaleUp,
				home: n.ID, homes: missing[i : i+1]}
			needs = append(needs, fresh)
		}
	}
	return needs
}

// restartSystem stops a failed instance, unless it is too early to retry. Once the stop is confirmed, a new instance is
// placed on the node.
func (p *pass) restartSystem(g *groupView, inst *fsm.Instance) {
	if !p.mayRetry(g, p.version(g, inst), inst) {
		return
	}
	p.stop(inst, failureCause(inst), "failed")
}

// systemMissing lists the nodes that may get an instance of the group and have none that should run.
func (p *pass) systemMissing(g *groupView) []*fsm.Node {
	has := map[model.NodeID]bool{}
	for _, slot := range g.slots() {
		if slot.holder != nil {
			has[slot.holder.Node] = true
		}
	}
	views := p.candidates().views
	missing := make([]*fsm.Node, 0, max(len(views)-len(has), 0))
	for _, v := range views {
		if v.refusal == nil && !v.detour && !has[v.node.ID] && v.node.Suits(g.spec) {
			missing = append(missing, v.node)
		}
	}
	return missing
}

// systemSeat is the slot of a system group for one node.
type systemSeat struct {
	slot int           // not set if busy
	last *fsm.Instance // the last instance on the node
	busy bool          // last is not confirmed stopped yet
}

// systemSeats returns a seat for each node on which an instance of the system group is stopping, or on which the last
// instance of a now empty slot ran. If a node has several such instances, it returns the first one's seat.
func (g *groupView) systemSeats() map[model.NodeID]systemSeat {
	seats := map[model.NodeID]systemSeat{}
	add := func(inst *fsm.Instance, seat systemSeat) {
		if _, known := seats[inst.Node]; !known {
			seats[inst.Node] = seat
		}
	}
	for _, v := range g.slots() {
		for _, inst := range v.leaving {
			add(inst, systemSeat{last: inst, busy: true})
		}
		if v.holder == nil && v.last != nil {
			add(v.last, systemSeat{slot: v.n, last: v.last})
		}
	}
	return seats
}

// freshSlot returns the smallest number, from *next on, of a slot that never had an instance and is not claimed. It
// sets *next to the following number.
func (g *groupView) freshSlot(next *int, claimed map[int]bool) int {
	for {
		n := *next
		*next++
		if v := g.known(n); !claimed[n] && (v == nil || v.holder == nil && v.last == nil) {
			return n
		}
	}
}

// stopStraySystem stops instances on nodes that no longer meet the group's constraints or have another platform, except
// on offline nodes.
func (p *pass) stopStraySystem(g *groupView) {
	for _, slot := range g.slots() {
		if slot.holder == nil {
			continue
		}
		if n := p.node(slot.holder.Node); n != nil && n.Health != model.HealthOffline && !n.Keeps(g.spec) {
			slot.dropped = p.stop(slot.holder, model.CauseScaleDown, "the node no longer meets the constraints")
		}
	}
}
