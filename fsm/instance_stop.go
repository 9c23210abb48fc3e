package fsm

import (
	"strings"

	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

func (c *InstanceStop) apply(s *State) error {
	if refusal := checkGrace(c.Grace); refusal != nil {
		return refusal
	}
	inst, ok := s.Instances.Get(c.ID)
	if !ok {
		return s.endHolding(c.ID)
	}
	if s.InGrace(inst) && c.Cause == model.CauseUser {
		return asError(s.endGraceFor(inst, c))
	}
	if inst.Desired != model.DesiredRunning {
		return model.Refuse(model.CodeStopping, "instance %s is already %s", c.ID, inst.Desired)
	}
	c = c.asAskedNow(inst)
	if c.Cause == model.CauseUser && !inst.Eviction.Preparing && s.unprepared(inst, c) != nil {
		return s.prepareFirst(inst, c)
	}
	if refusal := s.mayStop(inst, c); refusal != nil {
		return refusal
	}
	waited := inst.WaitsForRoom()
	s.beginStop(inst, c)
	if waited {
		s.maybePurge(inst.Group) // an instance that waited for room never ran, so its agent will report no stop
	}
	return nil
}

// mayStop returns nil if a stop may begin. No other code decides this (B14). mayStop checks the preparation, the role,
// the gates, the surge and the budgets.
func (s *State) mayStop(inst *Instance, c *InstanceStop) *model.Error {
	if refusal := s.unprepared(inst, c); refusal != nil {
		return refusal
	}
	return s.checkStop(inst, c, EveryGate)
}

// checkStop makes all checks of mayStop except that of the preparation, so it also decides whether a preparation may
// begin. choice says which gates are checked.
func (s *State) checkStop(inst *Instance, c *InstanceStop, choice GateChoice) *model.Error {
	if !c.Cause.Valid() {
		return model.Refuse(model.CodeInvalid, "%q is no cause", c.Cause)
	}
	if c.Asked && !(inst.Eviction.Requested && inst.Eviction.Cause == model.CauseUser) {
		return model.Refuse(model.CodeStale, "nobody asks for the eviction of instance %s any more", inst.ID)
	}
	if refusal := s.freshFacts(c.Facts); refusal != nil {
		return refusal
	}
	if refusal := s.MayEvict(inst, c.Cause, c.By, choice); refusal != nil && !(c.Bypass && c.Cause == model.CauseUser) {
		return refusal
	}
	if c.Cause == model.CausePreempted {
		if refusal := s.mayPreempt(inst, c); refusal != nil {
			return refusal
		}
	}
	if refusal := s.mayLoseCopy(inst, c); refusal != nil {
		return refusal
	}
	switch inst.Status.Observed {
	case model.ObservedLost, model.ObservedFailed:
		return nil // the instance is down already, so its stop costs no budget
	}
	if s.Unconfirmed && s.entry.actor == model.ActorLeader {
		return model.Refuse(model.CodeRestoreUnconfirmed,
			"a restore is not confirmed: instance %s goes on until it is", inst.ID).
			WithHint("look at what confirming would stop: outspan settings resume restore --dry-run; then: outspan " +
				"settings resume restore")
	}
	if refusal := inst.statusKnown(); refusal != nil && c.Cause.Voluntary() && !c.Bypass {
		return refusal
	}
	if inst.Status.Observed == model.ObservedPending || c.Cause == model.CauseJobStopped {
		return nil // nothing runs yet, or a person has stopped the whole job
	}
	if refusal := s.stillWanted(inst, c); refusal != nil {
		return refusal
	}
	switch {
	case c.Bypass && c.Cause == model.CauseNodeDraining:
		// accepting downtime lifts the limit on how many instances are down, but not the rate
		refusal, _ := s.checkRates(s.ledgersFor(inst, c.Cause), c.Cause)
		return refusal
	case c.Bypass:
		return nil
	}
	if c.Cause == model.CauseNodeDisabled {
		return nil // a stop for a disabled node skips surges and budgets (P21)
	}
	if c.unordered() {
		if refusal := s.checkRail(); refusal != nil {
			return refusal
		}
	}
	if plant.Is(plant.BudgetBeforeApply) && !s.entry.draft {
		return nil
	}
	refusal, _ := s.CheckBudget(inst, c.Cause)
	return refusal
}

// stillWanted checks that the reason of a stop still holds when the stop is applied. A bypass skips budgets, but not
// this check.
func (s *State) stillWanted(inst *Instance, c *InstanceStop) *model.Error {
	switch {
	case oneOf(c.Cause, model.CauseCrashLoop, model.CauseStartTimeout, model.CauseOOM, model.CauseCheckFailed) &&
		inst.Status.Observed == model.ObservedReady:
		return model.Refuse(model.CodeStale, "instance %s is ready: it was to be stopped for %s", inst.ID, c.Cause)
	case c.Cause == model.CauseCheckFailed:
		return s.mayReplaceUnready(inst)
	case c.Cause == model.CauseNodeDraining && c.By == ByPolicy:
		return s.mayPolicyStop(inst)
	case c.Cause == model.CauseNodeDraining:
		return s.mayDrain(inst, c)
	case c.Cause == model.CauseDrainTimeout:
		return s.mayForce(inst, c.By)
	case c.Cause == model.CauseNodeDisabled:
		node, _ := s.Nodes.Get(inst.Node)
		if node == nil || node.Intent != model.IntentDisabled {
			return model.Refuse(model.CodeStale, "node %s is not disabled", inst.Node)
		}
		return s.Movable(inst)
	case c.Cause == model.CauseNodeNotReady:
		return s.mayStopTroubled(inst)
	case c.Cause.IsMove():
		return s.mayFinishMove(inst, c)
	case c.Cause == model.CauseUser && inst.Eviction.Surge && s.entry.actor == model.ActorLeader:
		return s.surged(inst) // a stop that a person orders directly does not wait for the replacement
	}
	return nil
}

// mayReplaceUnready checks that an instance has been unready for longer than its group tolerates. If the group replaces
// first, the replacement must be ready, too.
func (s *State) mayReplaceUnready(inst *Instance) *model.Error {
	if !s.unreadyLong(inst) {
		return model.Refuse(model.CodeStale, "instance %s has not been unready for longer than its group tolerates", inst.ID)
	}
	if holder, ok := s.Instances.Get(inst.Links.Replaces); ok && holder.Desired == model.DesiredRunning &&
		holder.Links.ReplacedBy == inst.ID {
		return nil // inst is itself a replacement, and the instance that it should replace still has the slot
	}
	return s.surged(inst)
}

// mayDrain checks a stop by a drain. The drain must act on the node now (see drainAt). Unless the drain is forced, the
// role must let the instance leave. Unless the drain is forced or accepts downtime of the group, the replacement of a
// surge must be ready. For a member of a replicated group, mayDrainMember replaces the check of the surge.
func (s *State) mayDrain(inst *Instance, c *InstanceStop) *model.Error {
	drain, _, refusal := s.drainAt(inst.Node, c.By)
	if refusal != nil {
		return refusal
	}
	if c.Bypass && !drain.Options.AcceptsDowntime(inst.Group) {
		return model.Refuse(model.CodeInvalid, "drain %s was not told to accept downtime of %s", c.By, inst.Group)
	}
	if refusal := s.Movable(inst); refusal != nil && !drain.Options.Force {
		return refusal
	}
	if m, member := s.MemberOf(inst); member {
		return s.mayDrainMember(inst, m, drain)
	}
	if drain.Options.Force || drain.Options.AcceptsDowntime(inst.Group) {
		return nil
	}
	return s.surged(inst)
}

// mayForce checks a stop at a drain's deadline. The drain must act on the node now and have ForceAtDeadline, and the
// node's deadline must have passed. Code: stale.
func (s *State) mayForce(inst *Instance, by string) *model.Error {
	drain, part, refusal := s.drainAt(inst.Node, by)
	if refusal == nil && (!drain.Options.ForceAtDeadline || s.Now < part.Deadline) {
		refusal = model.Refuse(model.CodeStale, "drain %s stops nothing by force on node %s now", by, inst.Node)
	}
	return refusal
}

// drainAt returns a drain and its part for a node. The parameter by is the id of the drain. drainAt refuses if the
// drain does not exist, is paused, has ended on the node, or has not reached the node's turn. Code: stale.
func (s *State) drainAt(node model.NodeID, by string) (*Drain, DrainNode, *model.Error) {
	drain, ok := s.Drains.Get(model.DrainID(by))
	if !ok {
		return nil, DrainNode{}, model.Refuse(model.CodeStale, "there is no drain %q", by)
	}
	part, _ := drain.Node(node)
	if part.Phase != model.PhaseDraining || !part.Turn || drain.Paused {
		return nil, DrainNode{}, model.Refuse(model.CodeStale, "drain %s does not run on node %s now", by, node)
	}
	return drain, part, nil
}

// covers reports whether the instance, a replacement, has reached the state that a surge waits for. It must be ready
// or, if wait is WaitStarted, at least started.
func (i *Instance) covers(wait model.SurgeWait) bool {
	return i.Ready() || wait == model.WaitStarted && i.Wanted() && i.Status.Observed != model.ObservedPending
}

// beginStop writes these before and after InstanceStop.By into the reason of a stop.
const (
	bypassed  = "budget bypassed: "
	andRemark = "; "
)

// orderedBy returns the drain id in the reason of a stop that a drain began.
func orderedBy(reason string) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(reason, bypassed), andRemark)
	return id
}

func (s *State) beginStop(inst *Instance, c *InstanceStop) {
	reason := c.By
	if c.Bypass {
		reason = bypassed + c.By
	}
	if why := s.surgeGivenUp(inst, c.Cause); why != "" && inst.Ready() {
		reason += andRemark + why
		s.noteSurge(inst.Group, why)
	}
	text := s.overridden(inst, c)
	s.spendRate(inst, c)
	s.spendStop(inst, c)
	if c.Avoid {
		s.avoidOnRequest(inst, c.By)
	}
	desired := model.DesiredDraining
	switch inst.Status.Observed {
	case model.ObservedPending, model.ObservedLost, model.ObservedFailed:
		desired = model.DesiredStopped
	}
	next := *inst
	next.Marks.StopGrace = s.graceOf(inst, c.Grace)
	next.Marks.GraceOverride = c.Grace
	s.moveDesired(&next, desired, c.Cause, reason, text)
	switch c.Cause {
	case model.CauseNodeDraining:
		s.countMoved(model.DrainID(c.By), inst)
	case model.CauseStartTimeout, model.CauseCheckFailed:
		if next, ok := s.Successor(inst); ok && c.Cause == model.CauseCheckFailed && next.Cause == model.CauseCheckFailed {
			break // the failure was noted when the replacement was placed
		}
		// the failure of a failed instance was noted when it failed, and an instance that waits for room never ran
		if inst.Status.Observed != model.ObservedFailed && !inst.WaitsForRoom() {
			s.noteFailure(inst, string(c.Cause))
		}
	}
}

// checkGrace refuses a grace that a job file could not have. The grace must be bounded, because LeaseEnd includes it.
// Code: invalid.
func checkGrace(grace *model.Duration) *model.Error {
	if grace != nil && (*grace < 0 || *grace > model.MaxGrace) {
		return model.Refuse(model.CodeInvalid, "a grace of %s: it must be 0s to %s", *grace, model.MaxGrace)
	}
	return nil
}

// graceOf returns how long a stop of an instance may take: drain_delay plus the grace. If override is not nil, it
// replaces the group's grace.
func (s *jobs) graceOf(inst *Instance, override *model.Duration) model.Duration {
	spec, ok := s.Spec(inst.Group, inst.Version)
	if !ok {
		return 0
	}
	if override != nil {
		return spec.Stop.DrainDelay + *override
	}
	return spec.Stop.DrainDelay + spec.Stop.Grace
}

// wordOfStop is how long an online agent may take to learn of a stop. It is longer than a failover.
const wordOfStop = 10 * model.Second

// StopDue returns when the servers mark a draining instance as stopped (P15). The grace counts from the agent's report
// that the stop began, so a program keeps its whole grace even if its agent learns of the stop late. Without this
// report, the grace counts from the decision to stop, and wordOfStop is added unless the node is offline (P16).
func (s *fleet) StopDue(i *Instance) model.Time {
	if i.Marks.StopHeard != 0 {
		return i.Marks.StopHeard.Add(i.Marks.StopGrace)
	}
	due := i.Marks.StopBegan.Add(i.Marks.StopGrace)
	if n, ok := s.Nodes.Get(i.Node); ok && n.Health != model.HealthOffline {
		due = due.Add(wordOfStop)
	}
	return due
}

func (c *InstanceKill) apply(s *State) error {
	inst, ok := s.Instances.Get(c.ID)
	switch {
	case !ok:
		return model.Refuse(model.CodeNotFound, "there is no instance %s", c.ID)
	case c.Now && s.InGrace(inst):
		s.endGrace(inst, model.CauseDrainTimeout, "its drain is out of time")
		return nil
	case inst.Desired == model.DesiredStopped:
		return nil
	case inst.Desired != model.DesiredDraining:
		return model.Refuse(model.CodeConflict, "instance %s is not draining", c.ID)
	case !c.Now && s.Now < s.StopDue(inst):
		return model.Refuse(model.CodeGraceRunning, "instance %s has %s of its grace left", c.ID, s.StopDue(inst).Sub(s.Now))
	}
	s.setDesired(inst, model.DesiredStopped, model.CauseDrainTimeout, "its grace is over")
	return nil
}

// InGrace reports whether an instance was replaced while its node was offline, may still run there, and has a grace.
// The agent gives the instance its grace, because the program may be serving clients. An instance has no grace if its
// slot has one holder, or if its stop set the grace to 0.
func (s *jobs) InGrace(inst *Instance) bool {
	spec, ok := s.Spec(inst.Group, inst.Version)
	given := inst.Marks.GraceOverride == nil || *inst.Marks.GraceOverride > 0
	return ok && given && inst.Desired == model.DesiredStopped && inst.Status.Observed != model.ObservedStopped &&
		inst.Marks.StopCause == model.CauseNodeOffline && !spec.OneHolder()
}

// endGraceFor carries out a person's stop of an instance for which InGrace is true. If the command sets the grace to 0,
// the grace ends at once. Any other grace is refused, because nobody knows how much of the grace is left. Code:
// stopping.
func (s *State) endGraceFor(inst *Instance, c *InstanceStop) *model.Error {
	if c.Grace == nil || *c.Grace != 0 {
		return model.Refuse(model.CodeStopping,
			"instance %s was replaced while its node was silent, and ends there within its grace", inst.ID).
			WithHint("to end it at once: outspan instance stop %s --grace 0s", inst.ID)
	}
	s.endGrace(inst, model.CauseUser, c.By)
	return nil
}

// endGrace makes the agent kill an instance at once. InGrace must be true for the instance.
func (s *State) endGrace(inst *Instance, cause model.Cause, reason string) {
	next := *inst
	next.Marks.GraceOverride, next.Marks.StopGrace = new(model.Duration), 0
	s.setInstance(inst, &next)
	s.callAgent(inst.Node)
	s.emit(Event{Type: model.EventDesired, Subject: "instance/" + string(inst.ID), Cause: cause,
		Before: string(model.DesiredDraining), After: string(model.DesiredStopped),
		Data: map[string]string{"node": string(inst.Node), "group": string(inst.Group), "reason": reason}})
}
