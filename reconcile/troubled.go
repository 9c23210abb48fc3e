package reconcile

import (
	"fmt"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// markTroubled requests the eviction of instances if the agent of their node has reported the node as degraded for
// longer than their group tolerates. The same gates, order and budgets as in a drain apply. During a hold no instance
// leaves: so many nodes have problems that another node would hardly be better.
func (p *pass) markTroubled() {
	for _, id := range p.troubled {
		n := p.node(id)
		var marks []fsm.InstanceMark
		for inst := range p.state().InstancesOn(id) {
			if inst.Desired != model.DesiredRunning || inst.Eviction.Requested || inst.Status.Observed == model.ObservedLost {
				continue
			}
			if p.toLeave(n, inst) {
				marks = append(marks, fsm.InstanceMark{
					ID: inst.ID, Requested: true, Cause: model.CauseNodeNotReady, By: troubledBy(n),
				})
			}
		}
		for _, mark := range marks {
			if refusal := p.plan.try("node/"+string(id), &mark); refusal != nil {
				p.plan.refuse("node/"+string(id), refusal)
			}
		}
	}
}

// toLeave reports whether an instance is to leave its degraded node now. If a hold or its group's toleration keeps the
// instance there, toLeave records the reason.
func (p *pass) toLeave(n *fsm.Node, inst *fsm.Instance) bool {
	until, leaves := p.state().Tolerated(inst)
	switch {
	case !leaves:
	case p.state().Hold.Active:
		p.wait(inst, model.CodeHold, troubledBy(n)+"; so many nodes are that nothing leaves them",
			"repair the nodes, or end the hold: outspan settings resume hold")
	case !p.reached(until):
		p.wait(inst, model.CodeReplacementPending,
			fmt.Sprintf("%s; its group tolerates that for %s more", troubledBy(n), until.Left(p.in.Now)), "")
	default:
		return true
	}
	return false
}

// troubledBy returns the reason that people are shown when instances leave a node that its own agent reports as
// degraded.
func troubledBy(n *fsm.Node) string { return "node " + n.Name + " is degraded: " + n.Self.Words() }

// leavesTroubled reports whether an instance was asked to leave because its node's agent reports the node as degraded.
func leavesTroubled(inst *fsm.Instance) bool {
	return inst.Eviction.Requested && inst.Eviction.Cause == model.CauseNodeNotReady
}

// troubleGone reports whether an instance needn't leave its node any more, for example because the node has recovered
// or a hold began.
func (p *pass) troubleGone(inst *fsm.Instance) bool {
	_, leaves := p.state().Tolerated(inst)
	return !leaves || p.state().Hold.Active
}

// stopTroubled stops a slot's holder, which must leave a degraded node or has been unready for too long on a healthy
// one. With surge, the stop waits until a replacement covers the holder. With stop-first, or if the quota requires that
// order, it only needs room for the replacement.
func (p *pass) stopTroubled(g *groupView, slot *slotView, w leaveReason, by string) {
	inst := slot.holder
	next, ok := p.state().Successor(inst)
	switch {
	case ok && p.state().Covers(next):
		p.stop(inst, w.cause(inst), by)
	case ok:
		p.wait(inst, model.CodeReplacementPending, fmt.Sprintf("its replacement %s on node %s is %s",
			next.ID, p.nodeName(next.Node), next.Status.Observed), "it becomes ready")
	case g.stopFirst(g.spec.Eviction.Order), p.state().MustStopFirst(inst) != nil:
		n := p.takeover(g, slot, w, urgentMove)
		if why := p.secured(n); why != nil {
			p.unplaced(n, why)
			return
		}
		p.stop(inst, w.cause(inst), by)
	}
}
