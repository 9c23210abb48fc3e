package fsm

import (
	"slices"

	"github.com/outspan/outspan/model"
)

// mayPreempt checks a stop with the cause "preempted" (docs/model.md, "Preemption"). The stop must be in the same group
// of commands as the placement that needs the room. MayTakeFrom and the role of the instance must allow the stop. The
// caller checks budgets.
func (s *State) mayPreempt(inst *Instance, c *InstanceStop) *model.Error {
	place := s.preemptor(inst.ID, model.InstanceID(c.By))
	switch {
	case place == nil:
		return model.Refuse(model.CodeConflict,
			"instance %s can't be preempted: no placement of %q takes its room in the same step", inst.ID, c.By)
	case c.Bypass:
		return model.Refuse(model.CodeInvalid, "a preemption never bypasses budgets")
	case inst.Node != place.Node || !inst.holdsClaims():
		return model.Refuse(model.CodeStale, "instance %s holds nothing on node %s", inst.ID, place.Node)
	case inst.WaitsForRoom():
		return model.Refuse(model.CodeConflict, "instance %s waits for room itself", inst.ID)
	}
	if refusal := s.MayTakeFrom(place.Group, inst.Group); refusal != nil {
		return refusal
	}
	return s.Movable(inst)
}

// preemptor finds the placement in the current group of commands that has this id and awaits the victim. It returns nil
// if there is none.
func (s *State) preemptor(victim, id model.InstanceID) *InstancePlace {
	for _, c := range s.entry.group {
		if place, ok := c.(*InstancePlace); ok && place.ID == id && slices.Contains(place.Awaits, victim) {
			return place
		}
	}
	return nil
}

// MayTakeFrom returns nil if an instance of the group taker may preempt an instance of the group owner. The class of
// taker's job must be higher. If both jobs have the same class, the class must allow it, the jobs must differ, and fair
// must return nil. Codes: not_found, conflict.
func (s *State) MayTakeFrom(taker, owner model.GroupID) *model.Error {
	a, _ := s.Jobs.Get(jobOf(taker))
	b, _ := s.Jobs.Get(jobOf(owner))
	if a == nil || b == nil {
		return model.Refuse(model.CodeNotFound, "there is no group %s or %s", taker, owner)
	}
	class, rank, known := s.Class(a.Class)
	other := s.ClassRank(b.Class)
	switch {
	case rank < other:
		return nil
	case rank > other || !known:
		return model.Refuse(model.CodeConflict, "%s of class %s can't preempt %s of class %s", taker, a.Class, owner, b.Class)
	case class.PreemptEqual != model.PreemptFair:
		return model.Refuse(model.CodeConflict, "%s and %s are of the class %s, which does not preempt its own",
			taker, owner, a.Class)
	case a.Name == b.Name:
		return model.Refuse(model.CodeConflict, "%s and %s are of the same job", taker, owner)
	}
	return s.fair(taker, a, b)
}

// fair checks a preemption between two jobs of a class. An instance of taker, a group of the job in to, would get the
// room of an instance of the job in from. The losing job must have the largest share of the class, and the winning job
// must stay below that share. Each preemption then lowers the list of shares, sorted from the largest, so preemptions
// come to an end. Code: conflict.
func (s *State) fair(taker model.GroupID, to, from *Job) *model.Error {
	shares, largest := s.Shares(to.Class), int64(0)
	for _, name := range sortedKeys(shares) {
		largest = max(largest, shares[name])
	}
	after := shares[to.Name] + s.shareOf(taker)
	if shares[from.Name] < largest || after >= largest {
		return model.Refuse(model.CodeConflict,
			"the largest share of class %s is %d MiB: job %s has %d MiB, and with one more job %s would have %d MiB",
			to.Class, largest>>20, from.Name, shares[from.Name]>>20, to.Name, after>>20)
	}
	return nil
}

// Shares returns the share of each job of a class. The share is the memory of the job's instances that should run, each
// counted by the current spec of its group. Shares visits every group.
func (s *State) Shares(class model.ClassName) map[model.JobName]int64 {
	shares := map[model.JobName]int64{}
	for id, g := range s.Groups.All() {
		if job, ok := s.Jobs.Get(jobOf(id)); ok && job.Class == class {
			shares[job.Name] += int64(g.Running) * s.shareOf(id)
		}
	}
	return shares
}

// shareOf returns what one instance of a group adds to its job's share.
func (s *State) shareOf(group model.GroupID) int64 {
	spec, ok := s.Policy(group)
	if !ok {
		return 0
	}
	return s.ClaimsOf(spec, nil).Resources.MemoryBytes
}

// mayAwait checks the instances that a placement awaits. They must be on its node and begin to stop for it in the same
// group of commands. The placement must not fit without their room, and the node must not have changed since the leader
// chose it. Codes: stale, invalid.
func (s *State) mayAwait(c *InstancePlace, node *Node, claims Claims) *model.Error {
	if c.NodeVersion != 0 && c.NodeVersion != node.Version || c.NodeVersion == 0 && len(c.Awaits) > 0 {
		return model.Refuse(model.CodeStale, "node %s changed since it was chosen", node.Name)
	}
	if len(c.Awaits) == 0 {
		return nil
	}
	for i, id := range c.Awaits {
		inst, ok := s.Instances.Get(id)
		switch {
		case slices.Contains(c.Awaits[:i], id):
			return model.Refuse(model.CodeInvalid, "instance %s is awaited twice", id)
		case !ok || inst.Node != c.Node || !inst.holdsClaims():
			return model.Refuse(model.CodeStale, "instance %s holds nothing on node %s", id, node.Name)
		case inst.Desired == model.DesiredRunning || !s.stopsFor(id, c.ID):
			return model.Refuse(model.CodeStale, "instance %s is not stopped for the room of %s", id, c.ID)
		}
	}
	if s.roomWith(node, claims, nil, c.claimOf(s)) == nil {
		return model.Refuse(model.CodeStale, "node %s has room for %s: nothing needs to stop", node.Name, c.ID)
	}
	return nil
}

// stopsFor reports whether the current group of commands stops the victim to make room for the preemptor.
func (s *State) stopsFor(victim, preemptor model.InstanceID) bool {
	return slices.ContainsFunc(s.entry.group, func(c Command) bool {
		stop, ok := c.(*InstanceStop)
		return ok && stop.ID == victim && stop.Cause == model.CausePreempted && model.InstanceID(stop.By) == preemptor
	})
}
