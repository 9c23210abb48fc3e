package reconcile

import (
	"cmp"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// reasons stores why instances and slots wait, as this decision found it. `why`, forecasts and status show these
// reasons, and a drain's last error contains them.
type reasons struct {
	blockers map[model.InstanceID]model.Blocker
	slots    map[slotKey]*unplaced
	targets  map[slotKey]model.NodeID // where a slot's next instance would be placed after the present one has stopped
	groups   map[model.GroupID]bool   // groups with an entry in slots or runs

	runs map[model.GroupID][]slotRun // one reason for many slots of a group; an entry in slots takes precedence
}

// slotRun says why none of the slots from first to last gets an instance now.
type slotRun struct {
	first, last int
	why         *unplaced
}

type slotKey struct {
	group model.GroupID
	slot  int
}

func newReasons() reasons {
	return reasons{blockers: map[model.InstanceID]model.Blocker{}, slots: map[slotKey]*unplaced{},
		targets: map[slotKey]model.NodeID{}, groups: map[model.GroupID]bool{},
		runs: map[model.GroupID][]slotRun{}}
}

// noRoom records why a slot's next instance can't be placed.
func (r *reasons) noRoom(key slotKey, why *unplaced) {
	r.slots[key], r.groups[key.group] = why, true
}

// noRooms records the same reason for all slots of a need.
func (r *reasons) noRooms(n *need, why *unplaced) {
	if n.more == 0 {
		r.noRoom(slotKey{n.group.id, n.slot}, why)
		return
	}
	id := n.group.id
	r.runs[id], r.groups[id] = append(r.runs[id], slotRun{n.slot, n.slot + n.more, why}), true
}

// slot returns why a slot's next instance can't be placed; nil if no reason is recorded.
func (r *reasons) slot(key slotKey) *unplaced {
	if why := r.slots[key]; why != nil {
		return why
	}
	runs := r.runs[key.group] // in the order of slots, because the needs of a group are in that order
	i, _ := slices.BinarySearchFunc(runs, key.slot, func(run slotRun, slot int) int { return cmp.Compare(run.last, slot) })
	if i == len(runs) || key.slot < runs[i].first {
		return nil
	}
	return runs[i].why
}

// lacksRoom reports whether the group has a slot whose next instance can't be placed.
func (r *reasons) lacksRoom(group model.GroupID) bool { return r.groups[group] }

// block records why something that should happen to an instance, such as its stop or its replacement, can't happen now.
// It also lists the reason among the refusals.
func (p *pass) block(inst *fsm.Instance, code model.Code, message, unblock string) {
	p.wait(inst, code, message, unblock)
	p.plan.refuse("instance/"+string(inst.ID), &model.Error{Code: code, Message: message})
}

// wait records what an instance waits for if the wait is normal. Unlike block, it lists nothing among the refusals.
func (p *pass) wait(inst *fsm.Instance, code model.Code, message, unblock string) {
	if code == model.CodeLastCopy {
		code = model.CodeLastHealthy // people are shown this code instead of the one that Apply uses
	}
	p.reasons.blockers[inst.ID] = model.Blocker{Code: code, Instance: inst.ID, Message: message, Unblock: unblock}
}

// blockBy records a refusal of the draft as the reason why an instance stays. The leader tries again by itself, so the
// hint must not ask an operator to try again.
func (p *pass) blockBy(inst *fsm.Instance, refusal *model.Error) {
	hint := refusal.Hint
	if rest, retry := strings.CutPrefix(hint, fsm.RetryThen); retry {
		hint = "it goes on by itself then" + rest
	}
	p.block(inst, refusal.Code, refusal.Message, hint)
}
