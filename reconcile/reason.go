package reconcile

import "github.com/outspan/outspan/fsm"

// reasons is why things wait, as this pass found it. Drains write it into their last error, and `why`, forecasts and status show it.
type reasons struct {
	blockers map[fsm.InstanceID]fsm.Blocker
	slots    map[slotKey]*unplaced
	targets  map[slotKey]fsm.NodeID // where the next instance of a slot would go once the last one has stopped
	groups   map[fsm.GroupID]bool   // that have a slot in slots
}

// slotKey names a slot of a group.
type slotKey struct {
	group fsm.GroupID
	slot  int
}

func newReasons() reasons {
	return reasons{blockers: map[fsm.InstanceID]fsm.Blocker{}, slots: map[slotKey]*unplaced{}, targets: map[slotKey]fsm.NodeID{}, groups: map[fsm.GroupID]bool{}}
}

// noRoom records why a slot's next instance can't be placed.
func (r *reasons) noRoom(key slotKey, why *unplaced) {
	r.slots[key], r.groups[key.group] = why, true
}

// lacksRoom reports whether an instance of the group can't be placed.
func (r *reasons) lacksRoom(group fsm.GroupID) bool { return r.groups[group] }

// block records why an instance that should go stays, and lists it among the refusals.
func (p *pass) block(inst *fsm.Instance, code fsm.Code, message, unblock string) {
	p.wait(inst, code, message, unblock)
	p.plan.refuse("instance/"+string(inst.ID), &fsm.Error{Code: code, Message: message})
}

// wait records what an instance waits for when nothing is wrong: it is no refusal.
func (p *pass) wait(inst *fsm.Instance, code fsm.Code, message, unblock string) {
	if code == fsm.CodeLastCopy {
		code = fsm.CodeLastHealthy // what the log refuses by one name keeps the instance by the other
	}
	p.reasons.blockers[inst.ID] = fsm.Blocker{Code: code, Instance: inst.ID, Message: message, Unblock: unblock}
}

// blockBy records a refusal of the draft.
func (p *pass) blockBy(inst *fsm.Instance, refusal *fsm.Error) {
	p.block(inst, refusal.Code, refusal.Message, refusal.Hint)
}
