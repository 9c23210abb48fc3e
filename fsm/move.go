package fsm

import (
	"fmt"

	"github.com/outspan/outspan/model"
)

// InstanceMove marks a ready instance for a move to a better node. The command must be in one group of commands with
// the InstancePlace of the replacement, so that the room is taken before anything stops. Codes: not_found, invalid,
// stopping, stale (a node, the group or the instance changed since the move was planned), conflict (an eviction is
// requested already), role_never, volume_local, the code of a gate, node_not_eligible, replacement_pending (an instance
// of the group is missing or not ready), budget_min_ready, budget_rate, actor_rate (see MoveWaits), mass_offline_hold.
type InstanceMove struct {
	ID            model.InstanceID `cbor:"1,keyasint"`
	Cause         model.Cause      `cbor:"2,keyasint"` // rebalance or affinity
	SourceVersion uint64           `cbor:"3,keyasint"` // version of the node that the instance is on
	Target        model.NodeID     `cbor:"4,keyasint"`
	TargetVersion uint64           `cbor:"5,keyasint"`
	GroupVersion  uint64           `cbor:"6,keyasint"`
	Gain          int              `cbor:"7,keyasint"` // how much better the target is, in points; for people
	// an operator requested the move, so the limit of moves in a cycle does not apply
	Asked bool `cbor:"8,keyasint,omitempty"`
}

func (c *InstanceMove) apply(s *State) error {
	inst, ok := s.Instances.Get(c.ID)
	switch {
	case !ok:
		return model.Refuse(model.CodeNotFound, "there is no instance %s", c.ID)
	case !c.Cause.IsMove():
		return model.Refuse(model.CodeInvalid, "%q is no cause of a move", c.Cause)
	case inst.Desired != model.DesiredRunning:
		return model.Refuse(model.CodeStopping, "instance %s is already %s", c.ID, inst.Desired)
	case inst.Eviction.Requested:
		return model.Refuse(model.CodeConflict, "instance %s is to be evicted already", c.ID)
	}
	if refusal := c.unchanged(s, inst); refusal != nil {
		return refusal
	}
	if refusal := s.MayMove(inst, c.Cause); refusal != nil {
		return refusal
	}
	if refusal, _ := s.MoveWaits(inst, c.Asked); refusal != nil {
		return refusal
	}
	s.beginMove(inst, c)
	return nil
}

// unchanged refuses a move if one of its nodes or its group changed since the move was planned, or if the target can't
// take the instance.
func (c *InstanceMove) unchanged(s *State, inst *Instance) *model.Error {
	source, there := s.Nodes.Get(inst.Node)
	target, ok := s.Nodes.Get(c.Target)
	group, known := s.Groups.Get(inst.Group)
	switch {
	case !ok || !there || !known:
		return model.Refuse(model.CodeNotFound, "there is no node %s, or none that instance %s is on", c.Target, c.ID)
	case c.Target == inst.Node:
		return model.Refuse(model.CodeInvalid, "instance %s is on node %s already", c.ID, c.Target)
	case source.Version != c.SourceVersion || target.Version != c.TargetVersion:
		return model.Refuse(model.CodeStale, "node %s or %s changed since the move was planned", source.Name, target.Name)
	case group.Version != c.GroupVersion || inst.Version != group.Version:
		return model.Refuse(model.CodeStale, "%s has a newer version", inst.Group)
	case source.Intent != model.IntentActive:
		return model.Refuse(model.CodeStale, "node %s is %s", source.Name, source.Intent)
	}
	if refusal := s.Eligible(target); refusal != nil {
		return refusal
	}
	if spec, ok := s.Spec(inst.Group, inst.Version); ok {
		if refusal := target.Starts(spec); refusal != nil {
			return refusal
		}
	}
	if a, avoided := target.Avoids(inst.Group, inst.Version, s.Now); avoided {
		return model.Refuse(model.CodeStale, "%s avoids node %s: %s", inst.Group, target.Name, a.Reason)
	}
	return nil
}

// MayMove returns nil if an instance may move to a better node. Otherwise it returns what forbids the move: a hold, an
// instance of the group that is missing or not ready, or the role, data, gates or budgets of the group. MoveWaits
// checks the limits that time alone lifts.
func (s *State) MayMove(inst *Instance, cause model.Cause) *model.Error {
	group, ok := s.Groups.Get(inst.Group)
	policy, known := s.Policy(inst.Group)
	switch {
	case !ok || !known:
		return model.Refuse(model.CodeNotFound, "there is no group %s", inst.Group)
	case s.Hold.Active:
		return model.Refuse(model.CodeHold, "too many nodes are silent at once: nothing is moved until that is over")
	case !inst.Ready() || group.Ready != group.Count || group.Running != group.Count || group.Held > 0:
		return model.Refuse(model.CodeReplacementPending, "%s has %d of %d ready: it is moved when it is at rest",
			group.ID, group.Ready, group.Count)
	}
	if refusal := s.Movable(inst); refusal != nil {
		return refusal
	}
	if group.Role == model.RoleSystem || len(policy.Volumes) > 0 || policy.OneHolder() ||
		policy.Eviction.Order != model.OrderSurge {
		return model.Refuse(model.CodeRoleNever,
			"instances of %s can't run twice or have data: they are not moved for a better place", group.ID).
			WithHint("move it with: outspan instance evict %s", inst.ID)
	}
	if refusal := s.MayEvict(inst, cause, string(model.ByRescheduler), s.BeforeHook(inst)); refusal != nil {
		return refusal
	}
	if refusal, _ := s.CheckBudget(inst, cause); refusal != nil {
		return refusal
	}
	return s.checkReserve(group)
}

// checkReserve refuses a move if instances that are down already use a part of the reserve of the group's budget, which
// is for unplanned losses (R57). It also refuses a move that would use the reserve of a rate, which is at least one
// stop and is for drains. Codes: budget_min_ready, budget_rate.
func (s *State) checkReserve(g *Group) *model.Error {
	reserve := (g.Budget.MaxDown*s.Settings.Rescheduling().Reserve + 99) / 100
	// the move itself costs no unit of the budget, because the successor is ready before the instance stops
	if room := g.Ready - g.Budget.MinReady; room < reserve {
		return model.Refuse(model.CodeBudgetMinReady,
			"%s may lose %d more, and the rescheduler leaves %d of its budget untouched", g.ID, room, reserve).
			WithHint("it waits until more are ready; see: outspan budget status %s", g.ID)
	}
	for _, l := range s.Ledgers(g.ID) {
		keep := max((l.Budget.RateMax*s.Settings.Rescheduling().Reserve+99)/100, 1)
		if left := l.Budget.RateMax - l.Used(s.Now); l.Budget.RateMax > 0 && left <= keep {
			return model.Refuse(model.CodeBudgetRate,
				"%s may lose %d more in %s, and the rescheduler leaves %d of that untouched", l.Name,
				max(left, 0), l.Budget.Window, keep).
				WithHint("see: outspan budget status %s", l.Name)
		}
	}
	return nil
}

// MoveWaits returns nil if no limit in time forbids a move now. Otherwise it returns a refusal with actor_rate, and the
// time at which the limit is lifted. The limits are the instance's age, its group's cool-down, and, unless asked is
// true, the number of moves in a cycle.
func (s *State) MoveWaits(inst *Instance, asked bool) (*model.Error, model.Time) {
	r := s.Settings.Rescheduling()
	group, ok := s.Groups.Get(inst.Group)
	if !ok {
		return nil, 0
	}
	if at := inst.Marks.Created.Add(r.MinAge); s.Now < at {
		return model.Refuse(model.CodeActorRate, "it is moved when it is %s old, in %s", r.MinAge, at.Sub(s.Now)), at
	}
	if at := group.MovedAt.Add(r.Cooldown); group.MovedAt != 0 && s.Now < at {
		return model.Refuse(model.CodeActorRate, "%s had a move less than %s ago; the next one is allowed in %s", group.ID,
			r.Cooldown, at.Sub(s.Now)), at
	}
	if asked {
		return nil, 0
	}
	if room, next := s.MoveRoom(); room == 0 {
		return model.Refuse(model.CodeActorRate, "%d moves began in the last %s; the next one is allowed in %s", r.Moves,
			r.Cycle, next.Sub(s.Now)), next
	}
	return nil, 0
}

// MoveRoom returns how many moves that no operator requested may begin now. If room is 0, the next of these moves may
// begin at next, or later.
func (s *State) MoveRoom() (room int, next model.Time) {
	r := s.Settings.Rescheduling()
	n, next := s.begun(RailMoves, r.Cycle)
	return max(r.Moves-n, 0), next
}

func (s *State) beginMove(inst *Instance, c *InstanceMove) {
	group, _ := s.Groups.Get(inst.Group)
	next := *group
	next.MovedAt = s.Now
	s.putGroup(&next)
	s.spendRail(RailMoves, s.Settings.Rescheduling().Cycle)
	target, _ := s.Nodes.Get(c.Target)
	s.flip(inst, Eviction{Requested: true, Cause: c.Cause, By: string(model.ByRescheduler), Since: s.Now},
		"EvictionAutomatic",
		fmt.Sprintf("the rescheduler moves it to node %s, gain %d", target.Name, c.Gain))
}

// mayFinishMove checks the conditions of the stop that finishes a move: the instance is still marked for the move, its
// successor is ready, its role lets it leave, and its stop leaves the reserve of the budget and the rate untouched.
func (s *State) mayFinishMove(inst *Instance, c *InstanceStop) *model.Error {
	if !inst.Eviction.Requested || inst.Eviction.Cause != c.Cause {
		return model.Refuse(model.CodeStale, "instance %s is not to be moved any more", inst.ID)
	}
	next, ok := s.Successor(inst)
	if !ok || !next.Ready() {
		return model.Refuse(model.CodeReplacementPending, "the replacement of instance %s is not ready yet", inst.ID)
	}
	if refusal := s.Movable(inst); refusal != nil {
		return refusal
	}
	group, ok := s.Groups.Get(inst.Group)
	if !ok {
		return nil
	}
	after := *group
	after.Ready--
	return s.checkReserve(&after)
}

// Move is a move that the rescheduler would make.
type Move struct {
	Instance model.InstanceID `json:"instance" cbor:"1,keyasint"`
	Group    model.GroupID    `json:"group" cbor:"2,keyasint"`
	From     model.NodeID     `json:"from" cbor:"3,keyasint"`
	To       model.NodeID     `json:"to" cbor:"4,keyasint"`
	Cause    model.Cause      `json:"cause" cbor:"5,keyasint"`
	Gain     int              `json:"gain" cbor:"6,keyasint"`                        // in points
	Blocker  *model.Blocker   `json:"blocker,omitempty" cbor:"7,keyasint,omitempty"` // nil if the move begins now
}
