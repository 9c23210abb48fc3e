package reconcile

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// wish is why the holder of a slot should make room for another instance.
type wish int

// The reasons, the strongest first.
const (
	wishNone     wish = iota
	wishLost          // its node is offline
	wishFailed        // it failed, or never became ready (P26)
	wishDisabled      // its node is disabled (P21)
	wishRebuilt       // its copy of the data is to be built elsewhere
	wishDrained       // a drain evicts it
	wishAsked         // a person wants it replaced, with the replacement made first
	wishTroubled      // its own agent reports its node as degraded
	wishUnready       // it has not been ready for longer than its group tolerates
	wishMoved         // the rescheduler has a better place for it
	wishRolled        // a new version takes its place
)

// wishOf returns the strongest reason why an instance that is desired running should make room.
func (p *pass) wishOf(g *groupView, inst *fsm.Instance) wish {
	// the common case, without a look at the node's row
	if inst.Ready() && !inst.Eviction.Requested && p.state().InFullService(inst.Node) {
		if inst.Version != g.row.Version && g.renewing() {
			return wishRolled
		}
		return wishNone
	}
	node := p.node(inst.Node)
	switch {
	case node == nil, inst.Status.Observed == model.ObservedLost &&
		!(inst.WaitsForRoom() && node.Health != model.HealthOffline):
		return wishLost
	case (inst.Status.Observed == model.ObservedFailed || p.startOverdue(inst)) && !node.Restore.Owes:
		// until its node's inventory is in, the instance may be ready already
		return wishFailed
	case node.Intent == model.IntentDisabled && !p.state().Unconfirmed && p.state().Movable(inst) == nil:
		return wishDisabled
	case p.rebuilt(inst):
		return wishRebuilt
	case inst.Eviction.Requested && p.evicting(inst) && !p.isMember(inst):
		// a member that is prepared for its stop keeps its copy where it is
		return wishDrained
	case inst.Eviction.Surge:
		return wishAsked
	case leavesTroubled(inst):
		return wishTroubled
	case p.unreadyLong(g, inst):
		return wishUnready
	case p.moving(inst):
		return wishMoved
	case inst.Version != g.row.Version && g.renewing():
		return wishRolled
	}
	return wishNone
}

// startOverdue reports whether an instance has used up its time to become ready. It is false while its node can't be
// heard.
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
		return false // its agent does not start it
	}
	return p.past(p.startDeadline(inst))
}

// waitsInVain reports whether the victims that a preemptor waits for are overdue by the start timeout. The preemptor
// then goes to a node with room. An instance of a system group belongs to its node, and one with data to its home:
// those stay.
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
	return p.past(end.Add(p.in.State.Settings.StartTimeout))
}

// startDeadline returns when an instance that is not ready has used up its time to become ready.
func (p *pass) startDeadline(inst *fsm.Instance) model.Time {
	return max(inst.Marks.Created, inst.Marks.UnreadySince, p.state().Confirmed).Add(p.in.State.Settings.StartTimeout)
}

// cause returns the cause that the log gives for replacing an instance for this reason.
func (w wish) cause(inst *fsm.Instance) model.Cause {
	switch w {
	case wishLost:
		return model.CauseNodeOffline
	case wishFailed:
		return failureCause(inst)
	case wishDisabled:
		return model.CauseNodeDisabled
	case wishDrained:
		return model.CauseNodeDraining
	case wishTroubled:
		return model.CauseNodeNotReady
	case wishUnready:
		return model.CauseCheckFailed
	case wishMoved, wishRebuilt, wishAsked:
		return inst.Eviction.Cause
	case wishRolled:
		return model.CauseRollout
	}
	return model.CauseScaleUp
}

// failureCause returns the cause that describes an instance's failure.
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

// goneFromNode is the reason of an instance that its agent did not know any more when it came back: the machine was
// restarted. That is no fault of the program.
const goneFromNode = "gone_from_node"

// isFailure reports whether a cause is a failure of the instance itself.
func isFailure(c model.Cause) bool {
	switch c {
	case model.CauseCrashLoop, model.CauseStartTimeout, model.CauseOOM, model.CauseCheckFailed:
		return true
	}
	return false
}
