package reconcile

import (
	"fmt"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// moving reports whether the rescheduler is moving an instance to another node.
func (p *pass) moving(inst *fsm.Instance) bool {
	return inst.Desired == model.DesiredRunning && inst.Eviction.Requested && inst.Eviction.Cause.IsMove()
}

// moveGone reports whether there is no reason any more to move an instance. That is so if its successor is missing, has
// failed, is lost, starts too slowly, or is on a node that must be emptied too. It is also so if the instance's own
// node is gone, drained or disabled, because that is then the reason to leave. If the instance is not down, it stays,
// and the successor is surplus (L14).
func (p *pass) moveGone(inst *fsm.Instance) bool {
	source := p.node(inst.Node)
	next, ok := p.state().Successor(inst)
	switch {
	case !ok || isDown(next) || p.startOverdue(next) || p.leaving(next):
		return true
	case source == nil || source.Intent == model.IntentDraining || source.Intent == model.IntentDisabled:
		return true
	}
	return false
}

// stopMoved stops an instance that the rescheduler moves, once its successor is ready. Until then, it records that the
// instance waits. Without a successor, the move is canceled, and stopMoved does nothing.
func (p *pass) stopMoved(slot *slotView) {
	inst := slot.holder
	next, ok := p.state().Successor(inst)
	if !ok {
		return
	}
	if !next.Ready() {
		p.wait(inst, model.CodeReplacementPending,
			fmt.Sprintf("its replacement %s on node %s is %s", next.ID, p.nodeName(next.Node), next.Status.Observed),
			"it becomes ready")
		return
	}
	p.stop(inst, inst.Eviction.Cause, string(model.ByRescheduler))
}

// Moves lists the moves that the rescheduler would make if an operator ran it now. A move that must wait has a Blocker.
// Moves also returns the groups of commands that begin the other moves, or nil if actuation is paused. It changes
// nothing and does not block.
func Moves(in Input) ([]fsm.Move, [][]fsm.Command) {
	in.Rebalance = true
	paused := in.State.Settings.Paused
	in.State.Settings.Paused = false
	p := decide(in)
	var begin [][]fsm.Command
	for _, group := range p.plan.accepted {
		if _, ok := group[0].(*fsm.InstanceMove); ok {
			begin = append(begin, group)
		}
	}
	if paused {
		for i := range p.moves {
			if p.moves[i].Blocker == nil {
				p.moves[i].Blocker = &model.Blocker{Code: model.CodePaused, Instance: p.moves[i].Instance,
					Message: "actuation is paused", Unblock: "outspan settings resume"}
			}
		}
		begin = nil
	}
	return p.moves, begin
}

// wakeForgotten plans the next decision for when something that keeps a group off a node expires: an entry in the
// node's avoid list, or a failure there.
func (p *pass) wakeForgotten(g *groupView) {
	for _, x := range g.row.Failures {
		if at := x.At.Add(g.spec.Reschedule.Interval); at > p.in.Now {
			p.plan.wakeAt(at)
		}
	}
	for _, n := range p.state().Nodes.All() {
		if a, avoided := n.Avoids(g.id, g.row.Version, p.in.Now); avoided {
			p.plan.wakeAt(a.Until)
		}
	}
}
