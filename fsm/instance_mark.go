package fsm

import (
	"fmt"
	"strings"

	"github.com/outspan/outspan/model"
)

func (c *InstanceMark) apply(s *State) error {
	inst, ok := s.Instances.Get(c.ID)
	switch {
	case !ok:
		return model.Refuse(model.CodeNotFound, "there is no instance %s", c.ID)
	case !c.Requested && c.Avoid:
		return asError(s.undoEviction(inst))
	case inst.Desired != model.DesiredRunning:
		return model.Refuse(model.CodeStopping, "instance %s is already %s", c.ID, inst.Desired)
	case c.Requested && !c.Cause.Valid():
		return model.Refuse(model.CodeInvalid, "%q is no cause", c.Cause)
	}
	if c.Requested && c.Cause == model.CauseNodeNotReady {
		if refusal := s.mayLeaveTroubled(inst); refusal != nil {
			return refusal
		}
	}
	if by, marks := s.PolicyMarks(inst); c.Requested && c.Automatic && (!marks || by != c.By) {
		return model.Refuse(model.CodeStale, "no policy asks for the eviction of instance %s in the name of %q",
			inst.ID, c.By)
	}
	if c.Requested && c.Surge {
		return asError(s.markSurge(inst, c))
	}
	if c.Requested && c.Avoid {
		s.avoidOnRequest(inst, c.By)
	}
	s.markFor(inst, c)
	return nil
}

// markFor sets or withdraws the eviction request as the command says. If a person evicts an instance whose eviction a
// policy has requested already, the request becomes the person's, without an event (L8).
func (s *State) markFor(inst *Instance, c *InstanceMark) {
	switch {
	case c.Requested && c.Automatic:
		s.flip(inst, Eviction{Requested: true, Cause: c.Cause, By: c.By, Since: s.Now, Automatic: true}, "EvictionAutomatic")
	case c.Requested && inst.Eviction.Requested && inst.Eviction.Automatic && c.Cause == model.CauseUser:
		next := *inst
		next.Eviction.Automatic, next.Eviction.Cause, next.Eviction.By = false, c.Cause, c.By
		s.setInstance(inst, &next)
	case c.Requested && c.Cause == model.CauseNodeNotReady:
		s.flip(inst, Eviction{Requested: true, Cause: c.Cause, By: c.By, Since: s.Now}, "EvictionAutomatic")
	default:
		s.mark(inst, c.Requested, c.Cause, c.By)
	}
}

func (s *State) mark(inst *Instance, requested bool, cause model.Cause, by string) {
	switch {
	case !requested:
		s.flip(inst, Eviction{}, "EvictionCanceled")
	default:
		s.flip(inst, Eviction{Requested: true, Cause: cause, By: by, Since: s.Now}, "EvictionUserRequested")
	}
}

// flip replaces an instance's eviction and emits one event. The parameter to is the new eviction. flip does nothing if
// Eviction.Requested would not change (L15). The event contains reason, and message as a text for people.
func (s *State) flip(inst *Instance, to Eviction, reason string, message ...string) {
	if inst.Eviction.Requested == to.Requested {
		return
	}
	next := *inst
	if inst.Eviction.Requested && inst.Marks.GraceOverride != nil {
		next.Marks.GraceOverride = nil // the override was for the canceled stop
		defer s.callAgent(inst.Node)
	}
	next.Eviction = to
	next.Eviction.Seq = inst.Eviction.Seq // Seq never goes back, so that no late answer fits a newer preparation
	cause := to.Cause
	if !to.Requested {
		cause = inst.Eviction.Cause
	}
	s.setInstance(inst, &next)
	if to.Automatic || inst.Eviction.Automatic {
		s.touch("nodes", Topic("node/"+inst.Node)) // the view of a node in the API shows AutoEvicting
	}
	data := map[string]string{"node": string(inst.Node), "group": string(inst.Group), "reason": reason, "by": to.By}
	if len(message) > 0 {
		data["message"] = strings.Join(message, "; ")
	}
	s.emit(Event{Type: model.EventEviction, Subject: "instance/" + string(inst.ID), Cause: cause,
		Before: fmt.Sprint(!to.Requested), After: fmt.Sprint(to.Requested), Data: data})
}

// markSurge records a person's request to stop an instance once its replacement is ready. If the instance has this
// request already, markSurge applies only the avoidance and the grace of the new command.
func (s *State) markSurge(inst *Instance, c *InstanceMark) *model.Error {
	if refusal := s.maySurge(inst, c); refusal != nil {
		return refusal
	}
	if c.Avoid {
		s.avoidOnRequest(inst, c.By)
	}
	s.flip(inst, Eviction{Requested: true, Surge: true, Cause: c.Cause, By: c.By, Since: s.Now}, "EvictionUserRequested")
	if c.Grace != nil {
		marked, _ := s.Instances.Get(inst.ID)
		next := *marked
		next.Marks.GraceOverride = c.Grace
		s.setInstance(marked, &next)
		s.callAgent(inst.Node)
	}
	return nil
}

// maySurge returns nil if a person may make the request that markSurge records. Codes: invalid, conflict, and those of
// MayEvict.
func (s *State) maySurge(inst *Instance, c *InstanceMark) *model.Error {
	if refusal := checkGrace(c.Grace); refusal != nil {
		return refusal
	}
	if c.Cause != model.CauseUser {
		return model.Refuse(model.CodeInvalid, "only a person asks for a replacement before a stop, not %s", c.Cause)
	}
	switch {
	case !s.ReplacesFirst(inst):
		return model.Refuse(model.CodeInvalid,
			"%s does not replace first: its instances stop before their replacements start", inst.Group).
			WithHint("leave --surge out")
	case inst.Eviction.Requested && !inst.Eviction.Surge:
		return model.Refuse(model.CodeConflict, "instance %s is to be evicted already, for %s", inst.ID, inst.Eviction.Cause).
			WithHint("see what it waits for: outspan why %s", inst.ID)
	}
	return s.MayEvict(inst, c.Cause, c.By, s.BeforeHook(inst))
}

// ReplacesFirst reports whether a person may request a stop that waits until the replacement is ready. The eviction
// order of the group must be surge, its slots must allow two instances, and the instance must not be a replica.
func (s *State) ReplacesFirst(inst *Instance) bool {
	policy, ok := s.Policy(inst.Group)
	_, replica := s.MemberOf(inst)
	return ok && !replica && !policy.OneHolder() && policy.Eviction.Order == model.OrderSurge
}

// surged refuses a stop until the replacement has reached the state that the surge waits for. It refuses nothing if the
// eviction order of the group is not surge, or if the class's quota has no room for a replacement. Code:
// replacement_pending.
func (s *State) surged(inst *Instance) *model.Error {
	policy, ok := s.Policy(inst.Group)
	if !ok || policy.Eviction.Order != model.OrderSurge {
		return nil
	}
	next, ok := s.Successor(inst)
	if !ok && s.MustStopFirst(inst) != nil {
		return nil // the class's quota has no room for a surge
	}
	if !ok || !s.covers(next) {
		return model.Refuse(model.CodeReplacementPending, "the replacement of instance %s is not ready yet", inst.ID)
	}
	return nil
}

// asAskedNow returns the stop to carry out. If the leader stops the instance for a person's eviction (Asked), By and
// Grace become those of the eviction that is requested now: since the leader decided, the person may have withdrawn the
// eviction and requested another one.
func (c *InstanceStop) asAskedNow(inst *Instance) *InstanceStop {
	if !c.Asked {
		return c
	}
	now := *c
	now.By, now.Grace = inst.Eviction.By, inst.Marks.GraceOverride
	return &now
}
