package fsm

import "github.com/outspan/outspan/model"

// markSurge records a person's request to stop an instance once its replacement is ready. If the same is requested
// already, it only applies the avoidance and the grace of the new command.
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

// maySurge returns nil if a person may request the stop of an instance once its replacement is ready. Codes: invalid,
// conflict, and those of MayEvict.
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

// ReplacesFirst reports whether a person may request that an instance is stopped once its replacement is ready. Its
// group must replace first, its slot must allow two instances, and it must not be a replica.
func (s *State) ReplacesFirst(inst *Instance) bool {
	policy, ok := s.Policy(inst.Group)
	_, replica := s.MemberOf(inst)
	return ok && !replica && !policy.OneHolder() && policy.Eviction.Order == model.OrderSurge
}

// surged refuses to stop an instance of a group that replaces first until the replacement has reached the state that
// the surge waits for. It does not refuse if there is no replacement because the class's quota has no room for one.
// Code: replacement_pending.
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

// asAskedNow returns the stop with By and Grace of the eviction that is requested now, if c is a leader's stop for an
// eviction that a person requested (Asked). Since the leader decided, the person may have withdrawn that eviction and
// requested another one. asAskedNow returns any other stop unchanged.
func (c *InstanceStop) asAskedNow(inst *Instance) *InstanceStop {
	if !c.Asked {
		return c
	}
	now := *c
	now.By, now.Grace = inst.Eviction.By, inst.Marks.GraceOverride
	return &now
}
