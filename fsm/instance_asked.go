package fsm

import "github.com/outspan/outspan/model"

// stillAsked refuses a stop that the leader decided for a person who has cancelled it since: the eviction that was asked for, or the transfer whose
// volumes the instance has. A person's own stop asks by itself. Code: stale.
func (s *State) stillAsked(inst *Instance, c *InstanceStop) *model.Error {
	if c.Cause != model.CauseUser || s.entry.actor != model.ActorLeader || s.stopsForTransfer(inst, c) {
		return nil
	}
	if !inst.Eviction.Requested || inst.Eviction.Cause != model.CauseUser {
		return model.Refuse(model.CodeStale, "nobody asks for the stop of instance %s any more", inst.ID)
	}
	return nil
}

// stopsForTransfer reports whether a stop is the one that a running transfer of the instance's slot begins with.
func (s *State) stopsForTransfer(inst *Instance, c *InstanceStop) bool {
	for _, t := range s.Transfers.All() {
		if t.Group == inst.Group && t.Slot == inst.Slot && !t.Phase.Ended() && t.Actor() == c.By {
			return true
		}
	}
	return false
}

// replacedFirst refuses the leader's stop for a person who wants the instance replaced first, until the replacement covers it: a replica's copy is
// built elsewhere, another instance's replacement has come as far as the surge waits for.
func (s *State) replacedFirst(inst *Instance, c *InstanceStop) *model.Error {
	if s.stopsForTransfer(inst, c) {
		return nil
	}
	if _, member := s.MemberOf(inst); member {
		return s.builtElsewhere(inst)
	}
	if inst.Eviction.Surge {
		return s.surged(inst)
	}
	return nil
}
