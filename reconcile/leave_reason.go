package reconcile

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// leaveReason is why the holder of a slot should make room for another instance.
type leaveReason int

// The reasons to leave. After leaveNone, the strongest reason is first.
const (
	leaveNone     leaveReason = iota
	leaveLost                 // its node is offline or was forgotten
	leaveFailed               // it failed, or did not become ready in time (P26)
	leaveDisabled             // its node is disabled (P21)
	leaveRebuilt              // its copy is to be built elsewhere first
	leaveDrained              // a drain evicts it
	leaveAsked                // a user evicts it, and its replacement is made first
	leaveTroubled             // its node's agent reports troubles
	leaveUnready              // it has not been ready for longer than its group tolerates
	leaveMoved                // the rescheduler has a better place for it
	leaveRolled               // a new version takes its place
)

// leaveReasonOf returns the strongest reason why an instance that is desired running should make room, or leaveNone.
func (p *pass) leaveReasonOf(g *groupView, inst *fsm.Instance) leaveReason {
	// the most common case needs no look at the node's row
	if inst.Ready() && !inst.Eviction.Requested && p.state().InService(inst.Node) {
		if inst.Version != g.row.Version && g.renewing() {
			return leaveRolled
		}
		return leaveNone
	}
	node := p.node(inst.Node)
	switch {
	case node == nil, inst.Status.Observed == model.ObservedLost &&
		!(inst.WaitsForRoom() && node.Health != model.HealthOffline):
		return leaveLost
	case (inst.Status.Observed == model.ObservedFailed || p.startOverdue(inst)) && !node.Restore.InventoryOwed:
		// while the node's inventory is missing after a restore, the servers may not know that the instance is ready
		return leaveFailed
	case node.Intent == model.IntentDisabled && !p.state().Unconfirmed && p.state().Movable(inst) == nil:
		return leaveDisabled
	case p.rebuilt(inst):
		return leaveRebuilt
	case inst.Eviction.Requested && p.evicting(inst) && !p.isMember(inst):
		// a member that a drain stops in place keeps its copy on this node, so it makes no room
		return leaveDrained
	case inst.Eviction.Surge:
		return leaveAsked
	case leavesTroubled(inst):
		return leaveTroubled
	case p.unreadyLong(g, inst):
		return leaveUnready
	case p.moving(inst):
		return leaveMoved
	case inst.Version != g.row.Version && g.renewing():
		return leaveRolled
	}
	return leaveNone
}

// startOverdue reports whether an instance has not become ready in time. A preemptor that still waits for room is
// overdue if it waits in vain. Any other instance is not overdue while its node is offline or silent.
func (p *pass) startOverdue(inst *fsm.Instance) bool {
	if inst.WaitsForRoom() {
		return p.waitsInVain(inst)
	}
	if inst.Status.Observed != model.ObservedPending && inst.Status.Observed != model.ObservedBooting {
		return false
	}
	if n := p.node(inst.Node); n == nil || p.isOut(n) {
		return false
	}
	if spec, ok := p.state().Spec(inst.Group, inst.Version); ok &&
		p.state().SlotUnsettled(spec, inst.Group, inst.Slot) != nil {
		return false // the agent does not start the instance yet
	}
	return p.reached(p.startDeadline(inst))
}

// waitsInVain reports whether the victims that a preemptor waits for are overdue by the start timeout. If so, the
// preemptor is placed on another node. The answer is false for an instance that can't be placed elsewhere, because it
// belongs to a system group or has data on its home node.
func (p *pass) waitsInVain(inst *fsm.Instance) bool {
	policy, ok := p.state().Policy(inst.Group)
	if !ok || policy.Role == model.RoleSystem {
		return false
	}
	if _, home := p.state().VolumeHome(policy, inst.Group, inst.Slot); home &&
		p.state().MayRefill(policy, inst.Group, inst.Slot) != nil {
		return false
	}
	end := inst.Marks.Created
	for _, id := range inst.Links.Awaits {
		if victim := p.instance(id); victim != nil {
			end = max(end, p.state().StopDue(victim))
		}
	}
	return p.reached(end.Add(p.in.State.Settings.StartTimeout))
}

func (p *pass) startDeadline(inst *fsm.Instance) model.Time {
	return max(inst.Marks.Created, inst.Marks.UnreadySince, p.state().Confirmed).Add(p.in.State.Settings.StartTimeout)
}

// cause returns the cause that is recorded if inst is replaced for this reason.
func (w leaveReason) cause(inst *fsm.Instance) model.Cause {
	switch w {
	case leaveLost:
		return model.CauseNodeOffline
	case leaveFailed:
		return failureCause(inst)
	case leaveDisabled:
		return model.CauseNodeDisabled
	case leaveDrained:
		return model.CauseNodeDraining
	case leaveTroubled:
		return model.CauseNodeNotReady
	case leaveUnready:
		return model.CauseCheckFailed
	case leaveMoved, leaveRebuilt, leaveAsked:
		return inst.Eviction.Cause
	case leaveRolled:
		return model.CauseRollout
	}
	return model.CauseScaleUp
}

func failureCause(inst *fsm.Instance) model.Cause {
	if inst.Status.Observed != model.ObservedFailed {
		return model.CauseStartTimeout
	}
	switch reason := model.Cause(inst.Status.Reason); reason {
	case model.CauseStartTimeout, model.CauseOOM, model.CauseCheckFailed, model.CauseFenced:
		return reason
	}
	if inst.Status.Reason == goneFromNode {
		return model.CauseNodeOffline
	}
	return model.CauseCrashLoop
}

// goneFromNode is the status reason of an instance that was missing from its agent's inventory. Its program is not at
// fault.
const goneFromNode = "gone_from_node"

// isFailure reports whether a cause is a failure of the instance itself.
func isFailure(c model.Cause) bool {
	switch c {
	case model.CauseCrashLoop, model.CauseStartTimeout, model.CauseOOM, model.CauseCheckFailed:
		return true
	}
	return false
}
