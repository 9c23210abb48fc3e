package fsm

import (
	"strings"

	"github.com/outspan/outspan/model"
)

const (
	prepareSlack   = 10 * model.Second // added to the hook's timeout, so that the agent can report the result
	firstRetry     = 5 * model.Second  // wait after an aborted preparation, doubled after each further one in a row
	longestRetry   = 5 * model.Minute
	maxHookMessage = 400 // bytes
)

// InstancePrepare begins the preparation of a planned stop. The agent runs the before_stop hook and checks the member's
// own gates while the instance still serves. The preparation holds a unit of the budget. All checks of the stop are
// made now, except those of gates that the hook may change. Codes: those of InstanceStop, and conflict while a
// preparation is running.
type InstancePrepare struct {
	ID     model.InstanceID `cbor:"1,keyasint"`
	Cause  model.Cause      `cbor:"2,keyasint"`
	By     string           `cbor:"3,keyasint,omitempty"`
	Grace  *model.Duration  `cbor:"4,keyasint,omitempty"` // of the stop that follows
	Bypass bool             `cbor:"5,keyasint,omitempty"` // as in InstanceStop
	Facts  []FactsRef       `cbor:"6,keyasint,omitempty"`
	Asked  bool             `cbor:"7,keyasint,omitempty"` // as in InstanceStop
}

// InstanceRelease ends a preparation without a stop and gives the unit of the budget back. If Failure is not empty, the
// preparation was aborted. The next preparation must then wait, and the wait doubles with each abort in a row. Codes:
// not_found; stale if the preparation with this Seq is over.
type InstanceRelease struct {
	ID      model.InstanceID `cbor:"1,keyasint"`
	Seq     uint64           `cbor:"2,keyasint"`
	Failure string           `cbor:"3,keyasint,omitempty"`
}

// outside reports whether a cause comes from outside the job, so that roles and gates apply.
func outside(c model.Cause) bool {
	switch c {
	case model.CauseNodeDraining, model.CauseNodeDisabled, model.CauseNodeNotReady, model.CausePreempted,
		model.CauseRebalance, model.CauseAffinity, model.CauseUser:
		return true
	}
	return false
}

// gated reports whether roles and gates apply to a stop. They don't apply to the stop with which a transfer of the
// instance's volumes begins, because a transfer is the planned way to move what must not be evicted.
func (s *moves) gated(inst *Instance, cause model.Cause) bool {
	if _, moving := s.TransferOf(inst.Group, inst.Slot); moving && cause == model.CauseUser {
		return false
	}
	return outside(cause)
}

// Hook returns the hook with this name from the spec of the version that the instance runs.
func (s *jobs) Hook(inst *Instance, name model.HookName) (model.HookSpec, bool) {
	spec, ok := s.Spec(inst.Group, inst.Version)
	if !ok {
		return model.HookSpec{}, false
	}
	for _, h := range spec.Hooks {
		if h.Name == name {
			return h, true
		}
	}
	return model.HookSpec{}, false
}

// NeedsPreparing reports whether a stop must be prepared first. It must be prepared if it is planned and not forced,
// the instance is ready or unready, and the instance has a before_stop hook or a gate applies to the stop. The agent
// then runs the hook and checks the gates once more.
func (s *State) NeedsPreparing(inst *Instance, cause model.Cause, by string) bool {
	if inst.Status.Observed != model.ObservedReady && inst.Status.Observed != model.ObservedUnready ||
		s.forced(cause, by) {
		return false
	}
	switch cause {
	case model.CauseNodeDraining, model.CauseNodeNotReady, model.CauseRebalance, model.CauseAffinity,
		model.CauseRoleReplacement, model.CauseRollout, model.CauseScaleDown, model.CauseUser:
	default:
		return false
	}
	if _, has := s.Hook(inst, model.HookBeforeStop); has {
		return true
	}
	return len(s.GatesOf(inst, cause)) > 0
}

// GatesOf returns the gates that a stop of an instance for a cause must pass. It returns nil if gates don't apply.
func (s *State) GatesOf(inst *Instance, cause model.Cause) []string {
	if !s.gated(inst, cause) {
		return nil
	}
	return s.evictionGates(inst)
}

// evictionGates returns the gates that an instance's group has for evictions. It returns nil unless the group's
// eviction mode is "when".
func (s *jobs) evictionGates(inst *Instance) []string {
	policy, ok := s.Policy(inst.Group)
	if !ok || policy.Eviction.Mode != model.ModeWhen {
		return nil
	}
	return policy.Eviction.When
}

// forced reports whether a drain with force requests a stop. The parameter by is the id of the drain. A drain with
// force also stops instances whose role says that they must stay.
func (s *fleet) forced(cause model.Cause, by string) bool {
	d, ok := s.Drains.Get(model.DrainID(by))
	return ok && cause == model.CauseNodeDraining && d.Options.Force
}

// Prepared reports whether an instance's preparation is done, so that its stop may begin. A failed hook counts as done
// if its on_failure is "continue".
func (s *jobs) Prepared(inst *Instance) bool {
	result := inst.Status.Hook
	if !inst.Eviction.Preparing || result == nil || result.Seq != inst.Eviction.Seq {
		return false
	}
	hook, has := s.Hook(inst, model.HookBeforeStop)
	return result.OK || has && hook.OnFailure == model.HookContinue
}

// MayEvict returns nil if the role and the gates of an instance allow a stop for a cause. It does not look at budgets.
// It always allows a forced stop, and the stop of an instance that is not known to run. Codes: volume_local,
// role_never, and the code of the gate.
func (s *State) MayEvict(inst *Instance, cause model.Cause, by string, choice GateChoice) *model.Error {
	switch inst.Status.Observed {
	case model.ObservedLost, model.ObservedFailed, model.ObservedPending, model.ObservedStopped:
		return nil // nothing is known to run
	}
	if !s.gated(inst, cause) || s.forced(cause, by) {
		return nil
	}
	if refusal := s.Movable(inst); refusal != nil {
		if cause == model.CauseUser {
			return refusal.WithHint("start it again where it is with: outspan instance restart %s; or stop it all the same, "+
				"which is recorded: outspan instance stop %s --bypass-budget", inst.ID, inst.ID)
		}
		return refusal
	}
	return s.CheckGates(inst, s.evictionGates(inst), choice)
}

// BeforeHook returns which gates are checked before an instance is prepared. If there is a before_stop hook, the gates
// on the instance's own facts are not checked, because the hook may change these facts.
func (s *jobs) BeforeHook(inst *Instance) GateChoice {
	if _, has := s.Hook(inst, model.HookBeforeStop); has {
		return NotOfSelf
	}
	return EveryGate
}

// unprepared refuses a stop that must be prepared and is not prepared yet. A person's stop with a bypass needs no
// preparation. Code: stopping.
func (s *State) unprepared(inst *Instance, c *InstanceStop) *model.Error {
	if c.Bypass && c.Cause == model.CauseUser || !s.NeedsPreparing(inst, c.Cause, c.By) || s.Prepared(inst) {
		return nil
	}
	return model.Refuse(model.CodeStopping, "instance %s is not prepared for its stop yet", inst.ID).
		WithHint("see: outspan why %s", inst.ID)
}

func (c *InstancePrepare) apply(s *State) error {
	if refusal := checkGrace(c.Grace); refusal != nil {
		return refusal
	}
	inst, ok := s.Instances.Get(c.ID)
	switch {
	case !ok:
		return model.Refuse(model.CodeNotFound, "there is no instance %s", c.ID)
	case inst.Desired != model.DesiredRunning:
		return model.Refuse(model.CodeStopping, "instance %s is already %s", c.ID, inst.Desired)
	case inst.Eviction.Preparing:
		return model.Refuse(model.CodeConflict, "instance %s is being prepared already", c.ID)
	case !s.NeedsPreparing(inst, c.Cause, c.By):
		return model.Refuse(model.CodeInvalid, "a stop of instance %s for %s needs no preparation", c.ID, c.Cause)
	}
	stop := &InstanceStop{ID: c.ID, Cause: c.Cause, By: c.By, Bypass: c.Bypass, Facts: c.Facts, Asked: c.Asked}
	if refusal := s.checkStop(inst, stop, s.BeforeHook(inst)); refusal != nil {
		return refusal
	}
	if refusal := s.soleOfRate(inst, c.Cause); refusal != nil {
		return refusal
	}
	s.prepare(inst, c)
	return nil
}

// prepareFirst begins the preparation of a stop that a person requests. The leader makes the stop when the preparation
// is done. If c.Avoid is true, the group avoids the node from now on.
func (s *State) prepareFirst(inst *Instance, c *InstanceStop) error {
	prepare := &InstancePrepare{ID: c.ID, Cause: c.Cause, By: c.By, Grace: c.Grace, Facts: c.Facts, Asked: c.Asked}
	if err := prepare.apply(s); err != nil {
		return err
	}
	if !c.Asked {
		c.takeOver(s)
	}
	if c.Avoid {
		s.avoidOnRequest(inst, c.By)
	}
	return nil
}

// takeOver turns an earlier eviction request, whatever its cause, into that of the person who stops the instance now
// (L8). So the stop no longer waits for what the earlier request waited for, such as a replacement. The eviction of a
// member does not change, because the eviction also decides where the member's copy goes.
func (c *InstanceStop) takeOver(s *State) {
	inst, _ := s.Instances.Get(c.ID)
	if _, member := s.MemberOf(inst); member || inst.Eviction.Cause == c.Cause && !inst.Eviction.Surge {
		return
	}
	next := *inst
	next.Eviction.Cause, next.Eviction.By, next.Eviction.Surge = c.Cause, c.By, false
	next.Marks.GraceOverride = c.Grace
	s.setInstance(inst, &next)
}

// soleOfRate allows one preparation at a time in a group whose stops have a rate. Otherwise a second instance could be
// prepared and then be refused its stop. Code: budget_rate.
func (s *State) soleOfRate(inst *Instance, cause model.Cause) *model.Error {
	g, ok := s.Groups.Get(inst.Group)
	if !ok || g.Budget.RateMax == 0 || !cause.Voluntary() {
		return nil
	}
	for other := range s.InstancesOf(inst.Group) {
		if other.Eviction.Preparing && other.ID != inst.ID {
			return model.Refuse(model.CodeBudgetRate, "%s may lose %d per %s, and instance %s is about to stop", g.ID,
				g.Budget.RateMax, g.Budget.Window, other.ID)
		}
	}
	return nil
}

func (s *State) prepare(inst *Instance, c *InstancePrepare) {
	if !inst.Eviction.Requested {
		reason := "EvictionAutomatic"
		if c.Cause == model.CauseUser {
			reason = "EvictionUserRequested"
		}
		s.flip(inst, Eviction{Requested: true, Cause: c.Cause, By: c.By, Since: s.Now}, reason)
		inst, _ = s.Instances.Get(inst.ID)
	}
	next := *inst
	next.Eviction.Preparing = true
	next.Eviction.Seq++
	next.Eviction.RetryAt = s.Now.Add(s.prepareTime(inst) + prepareSlack)
	next.Status.Hook = nil
	if c.Grace != nil && !c.Asked { // if Asked, the row already has the eviction's grace
		next.Marks.GraceOverride = c.Grace
	}
	s.setInstance(inst, &next)
}

// prepareTime returns how long an agent may take to prepare a stop.
func (s *jobs) prepareTime(inst *Instance) model.Duration {
	if h, has := s.Hook(inst, model.HookBeforeStop); has {
		return h.Timeout
	}
	if spec, ok := s.Spec(inst.Group, inst.Version); ok && spec.RoleCheck != nil {
		return spec.RoleCheck.Timeout
	}
	return 0
}

func (c *InstanceRelease) apply(s *State) error {
	inst, ok := s.Instances.Get(c.ID)
	switch {
	case !ok:
		return model.Refuse(model.CodeNotFound, "there is no instance %s", c.ID)
	case !inst.Eviction.Preparing || inst.Eviction.Seq != c.Seq:
		return model.Refuse(model.CodeStale, "preparation %d of instance %s is over", c.Seq, c.ID)
	}
	next := *inst
	next.Eviction.Preparing, next.Eviction.RetryAt, next.Eviction.Failure = false, 0, c.Failure
	if c.Failure != "" {
		wait := firstRetry
		for range inst.Eviction.Aborts {
			wait = min(2*wait, longestRetry)
		}
		next.Eviction.RetryAt = s.Now.Add(wait)
		next.Eviction.Aborts++
	}
	s.setInstance(inst, &next)
	if c.Failure != "" && inst.Eviction.Aborts == 0 {
		s.emit(Event{Type: model.EventPreparation, Subject: "instance/" + string(inst.ID), Cause: inst.Eviction.Cause,
			Data: map[string]string{"node": string(inst.Node), "group": string(inst.Group),
				"by": inst.Eviction.By, "text": c.Failure}})
	}
	return nil
}

// endPreparation ends the preparation of an instance that no longer runs, or should not run any more. setInstance calls
// it for every row that it writes, so the unit of the budget is given back in the same entry.
func (i *Instance) endPreparation() {
	if i.Eviction.Preparing && (i.Desired != model.DesiredRunning || !i.runs()) {
		i.Eviction.Preparing, i.Eviction.RetryAt = false, 0
	}
}

// runs reports whether the instance's program is known to run and is not draining.
func (i *Instance) runs() bool {
	return oneOf(i.Status.Observed, model.ObservedBooting, model.ObservedReady, model.ObservedUnready)
}

// keepReported edits the status that an agent reported before it is stored in the row. It bounds the facts and the
// message of the hook, and drops the facts of an instance that does not run. If the status has no result of a
// preparation, the known result stays.
func keepReported(known, status *model.InstanceStatus) {
	status.Facts = CleanFacts(status.Facts)
	if !oneOf(status.Observed, model.ObservedBooting, model.ObservedReady, model.ObservedUnready) {
		status.Facts = nil
	}
	if status.Hook == nil {
		status.Hook = known.Hook
	} else {
		short := *status.Hook
		short.Message = model.ClipText(short.Message, maxHookMessage)
		status.Hook = &short
	}
}

// overridden lists what a stop with force or a bypass did not wait for, as a text for the event of the stop. It returns
// an empty string if there is nothing to list.
func (s *State) overridden(inst *Instance, c *InstanceStop) string {
	if !(s.forced(c.Cause, c.By) || c.Bypass) || !inst.runs() {
		return ""
	}
	var codes []string
	outranked := s.forced(c.Cause, c.By) || c.Cause == model.CauseDrainTimeout || c.Cause == model.CauseUser
	if refusal := s.Movable(inst); refusal != nil && outranked {
		codes = append(codes, string(refusal.Code))
	}
	if refusal := s.CheckGates(inst, s.evictionGates(inst), EveryGate); refusal != nil && outranked {
		codes = append(codes, string(refusal.Code))
	}
	if _, has := s.Hook(inst, model.HookBeforeStop); has && !s.Prepared(inst) {
		codes = append(codes, string(model.CodeHookFailed))
	}
	if refusal, _ := s.CheckBudget(inst, c.Cause); refusal != nil && c.Bypass {
		codes = append(codes, string(refusal.Code))
	}
	if len(codes) == 0 {
		return ""
	}
	return "forced over " + strings.Join(codes, " and ")
}
