package reconcile

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// systemUnsettled reports whether a group with one instance per node may need something. When every node has a ready one there is nothing to look at.
func (p *pass) systemUnsettled(g *fsm.Group) bool {
	if d := p.deploymentOf(g.ID); d != nil && !d.Status.Ended() {
		return true
	}
	policy, ok := p.state().Policy(g.ID)
	nodes := p.state().Nodes.Len()
	return !ok || len(policy.Constraints) > 0 || g.Ready != nodes || g.Running != nodes || p.hasStragglers(g)
}

// hasStragglers reports whether a system group has instances of another version than its own.
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

// systemWant is how many instances a system group should have on nodes that take part in a rollout: those it has, and those that are being replaced.
func (p *pass) systemWant(g *groupView) int {
	n := 0
	for _, slot := range g.slots() {
		switch {
		case slot.holder != nil && !slot.dropped && p.takesPart(g, slot.holder),
			slot.holder == nil && slot.last != nil && slot.last.Marks.StopCause == model.CauseRollout && p.takesPart(g, slot.last):
			n++
		}
	}
	return n
}

// systemNeeds lists what a system group lacks: an instance on each eligible node that has none, and room for those that failed to be started again there.
func (p *pass) systemNeeds(g *groupView) []*need {
	if g.row.Count == 0 {
		return nil
	}
	for _, slot := range g.slots() {
		if slot.holder != nil && p.wishOf(g, slot.holder) == wishFailed {
			p.restartSystem(g, slot.holder)
		}
	}
	var needs []*need
	next := 0
	for _, n := range p.systemMissing(g) {
		slot, last, busy := g.systemSlot(n.ID, &next)
		if busy {
			continue
		}
		version := p.version(g, last)
		if last != nil && isFailure(last.Marks.StopCause) && !p.mayRetry(g, version, last) {
			continue
		}
		need := &need{group: g, slot: slot, version: version, cause: model.CauseScaleUp, home: n.ID}
		if last != nil {
			need.cause = vacancyCause(last)
		}
		needs = append(needs, need)
	}
	return needs
}

// restartSystem stops an instance that failed, so that another one takes its place on the node when that is confirmed.
func (p *pass) restartSystem(g *groupView, inst *fsm.Instance) {
	if !p.mayRetry(g, p.version(g, inst), inst) {
		return
	}
	p.stop(inst, failureCause(inst), "failed")
}

// systemMissing lists the nodes that should have an instance of the group and have none that is wanted.
func (p *pass) systemMissing(g *groupView) []*fsm.Node {
	has := map[model.NodeID]bool{}
	for _, slot := range g.slots() {
		if slot.holder != nil {
			has[slot.holder.Node] = true
		}
	}
	var missing []*fsm.Node
	for _, v := range p.candidates().views {
		if v.refusal == nil && !v.detour && !has[v.node.ID] && suits(g.spec, v.node) {
			missing = append(missing, v.node)
		}
	}
	return missing
}

// suits reports whether a node meets a group's constraints.
func suits(spec *model.GroupSpec, n *fsm.Node) bool {
	for i := range spec.Constraints {
		if !n.Meets(&spec.Constraints[i]) {
			return false
		}
	}
	return true
}

// systemSlot finds the slot for a node's instance: the one that its last instance had, or the smallest that nobody has used, from *next on. busy: the last one
// has not stopped yet.
func (g *groupView) systemSlot(node model.NodeID, next *int) (slot int, last *fsm.Instance, busy bool) {
	for _, v := range g.slots() {
		for _, inst := range v.leaving {
			if inst.Node == node {
				return 0, inst, true
			}
		}
		if v.holder == nil && v.last != nil && v.last.Node == node {
			return v.n, v.last, false
		}
	}
	for {
		n := *next
		*next++
		if v := g.slot(n); v.holder == nil && v.last == nil {
			return n, nil, false
		}
	}
}

// stopStraySystem stops instances on nodes that no longer meet the group's constraints.
func (p *pass) stopStraySystem(g *groupView) {
	for _, slot := range g.slots() {
		if slot.holder == nil {
			continue
		}
		if n := p.node(slot.holder.Node); n != nil && n.Health != fsm.HealthOffline && !suits(g.spec, n) {
			slot.dropped = p.stop(slot.holder, model.CauseScaleDown, "the node no longer meets the constraints")
		}
	}
}
