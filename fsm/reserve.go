package fsm

import (
	"slices"

	"github.com/outspan/outspan/model"
)

// A preemptor's room is promised in the entry that begins the stops of its victims. The room is placed in the entry
// that confirms the stop of the last victim. Until then, the preemptor's row is pending, and the node's agent does not
// know of the preemptor. The memory that the preemptor will take still belongs to the victims. If the preemptor needs
// more than that, the difference is in Node.Promised. So the placed memory never exceeds what the node has, and no
// other instance gets the room (R46, R47).

// WaitsForRoom reports whether the instance is a preemptor whose victims have not all stopped.
func (i *Instance) WaitsForRoom() bool { return i != nil && len(i.Links.Awaits) > 0 }

// takesRoom reports whether the instance's claims are placed on its node, rather than only promised or already given
// back.
func (i *Instance) takesRoom() bool { return i.holdsClaims() && !i.WaitsForRoom() }

// agentKnows reports whether the node's agent should know of the instance.
func (i *Instance) agentKnows() bool { return i != nil && !i.WaitsForRoom() }

// FreeBytes returns the memory of a node that is neither placed nor promised. It is negative if the node has registered
// with less memory than its instances need.
func (n *Node) FreeBytes() int64 {
	return n.Allocatable().MemoryBytes - n.Placed.MemoryBytes - n.Promised
}

// promisedOn returns how much more memory the waiting preemptors on a node need than their victims still have, and the
// claims to the node than the instances that stop for them.
func (s *instances) promisedOn(node model.NodeID) int64 {
	sum := s.heldForPulls(node)
	for inst := range s.InstancesOn(node) {
		if inst.WaitsForRoom() && inst.holdsClaims() {
			sum += max(inst.Claims.Resources.MemoryBytes-s.heldBy(inst.Links.Awaits), 0)
		}
	}
	return sum
}

// heldBy returns the memory of the instances in ids that have not stopped yet.
func (s *instances) heldBy(ids []model.InstanceID) int64 {
	sum := int64(0)
	for _, id := range ids {
		if inst, ok := s.Instances.Get(id); ok && inst.holdsClaims() {
			sum += inst.Claims.Resources.MemoryBytes
		}
	}
	return sum
}

// roomCameFree removes an instance that was preempted and has stopped, or whose row is gone, from the Awaits lists of
// preemptors. If such a list becomes empty, the preemptor's claims are placed and its agent gets it, in the same entry.
func (s *State) roomCameFree(gone *Instance) {
	if gone.Marks.StopCause != model.CausePreempted {
		return
	}
	var waiting []*Instance
	for inst := range s.InstancesOn(gone.Node) {
		if slices.Contains(inst.Links.Awaits, gone.ID) {
			waiting = append(waiting, inst)
		}
	}
	for _, inst := range waiting {
		next := *inst
		next.Links.Awaits = slices.DeleteFunc(slices.Clone(inst.Links.Awaits), func(id model.InstanceID) bool {
			return id == gone.ID
		})
		if len(next.Links.Awaits) > 0 {
			s.setInstance(inst, &next)
			continue
		}
		next.Links.Awaits = nil
		next.Marks.UnreadySince = s.Now // its start timeout begins here
		s.setInstance(inst, &next)
		s.entry.later = append(s.entry.later,
			Event{Type: model.EventDesired, Subject: "instance/" + string(inst.ID), Cause: inst.Cause, Before: "waiting",
				After: string(model.DesiredRunning),
				Data: map[string]string{"node": string(inst.Node), "group": string(inst.Group),
					"reason": "what it waited for has stopped"}})
	}
}

// emitLater emits the events of the side effects of a group of commands. It runs after the commands, so these events
// are after the commands' own events.
func (s *State) emitLater() {
	for _, e := range s.entry.later {
		s.emit(e)
	}
	s.entry.later = nil
}

// endWaiting stops a preemptor that has not got its room yet, and gives up the promised room. The stop needs no
// confirmation, because the agent never knew of the preemptor. The victims still stop.
func (s *State) endWaiting(inst *Instance, cause model.Cause, reason string) *Instance {
	status := inst.Status
	status.Observed, status.Reason = model.ObservedStopped, "it never started"
	freed := *inst
	freed.Links.Awaits, freed.Desired = nil, model.DesiredStopped
	if freed.Marks.StopCause == "" {
		freed.Marks.StopCause, freed.Marks.StopReason, freed.Marks.StopBegan = cause, reason, s.Now
	}
	freed.Status = status
	s.setInstance(inst, &freed)
	data := map[string]string{"node": string(inst.Node), "group": string(inst.Group), "reason": reason}
	s.emit(Event{Type: model.EventDesired, Subject: "instance/" + string(inst.ID), Cause: cause,
		Before: string(inst.Desired), After: string(model.DesiredStopped), Data: data})
	s.emit(Event{Type: model.EventStatus, Subject: "instance/" + string(inst.ID), Before: string(inst.Status.Observed),
		After: string(model.ObservedStopped),
		Data:  map[string]string{"node": data["node"], "group": data["group"], "reason": status.Reason}})
	s.forgetOld(&freed)
	return &freed
}

// keepPromises ends all claims to a node and stops all preemptors that wait there, if the node has registered with less
// memory than is placed and promised there.
func (s *State) keepPromises(id model.NodeID) {
	n, ok := s.Nodes.Get(id)
	if !ok || n.FreeBytes() >= 0 {
		return
	}
	s.dropPullsOn(id)
	if n, _ = s.Nodes.Get(id); n.FreeBytes() >= 0 {
		return
	}
	var waiting []*Instance
	for inst := range s.InstancesOn(id) {
		if inst.WaitsForRoom() {
			waiting = append(waiting, inst)
		}
	}
	for _, inst := range waiting {
		s.endWaiting(inst, inst.Cause, "node "+n.Name+" came back with less room")
		s.maybePurge(inst.Group)
	}
}

// roomWith returns what Room would return if the instances in awaits had stopped and there were no claim own, which may
// be nil.
func (s *State) roomWith(n *Node, claims Claims, awaits []model.InstanceID, own *Pull) *model.Error {
	free := n.FreeBytes() + s.heldBy(awaits) + own.takes(&s.instances)
	if claims.Resources.MemoryBytes > free {
		return model.Refuse(model.CodeNoMemory, "node %s has %d MiB left, %d MiB are needed", n.Name, free>>20,
			claims.Resources.MemoryBytes>>20)
	}
	for _, p := range claims.Ports {
		port := p.Number
		if owner, taken := s.PortOwner(n.ID, port); taken && !slices.Contains(awaits, owner) &&
			(own == nil || owner != own.Owner()) {
			return model.Refuse(model.CodeNoPorts, "port %d of node %s belongs to instance %s", port, n.Name, owner)
		}
	}
	return nil
}
