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

// moveGone reports whether the reason to move an instance is gone. It is gone if the successor is missing, down, too
// slow to start, or on a node that must be emptied too. It is also gone if the instance's own node is forgotten,
// draining or disabled, because that node is then the reason to leave. When the move is canceled, one of the two
// instances is surplus (L14).
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

// stopMoved stops an instance that the rescheduler moves, once its successor is ready. Until then, it records why the
// instance waits. It does nothing if there is no successor, because the move is then canceled.
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

// wakeForgotten plans a decision for the time when one of the group's failures, or an entry for the group in a node's
// avoid list, expires. The node may take instances of the group again from that time.
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
