package fsm

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

// Movable returns nil if the instance may leave its node for a cause from outside its job, or a refusal. Codes:
// volume_local, role_never.
func (s *State) Movable(inst *Instance) *model.Error {
	policy, ok := s.Policy(inst.Group)
	if !ok || policy.Eviction.Mode != model.ModeNever {
		return nil
	}
	for _, v := range policy.Volumes {
		if v.Kind == model.VolumeLocal {
			return model.Refuse(model.CodeVolumeLocal, "instance %s holds the local volume %s", inst.ID,
				model.NewVolumeID(inst.Group, inst.Slot, v.Name)).
				WithHint("its data is only on this node; let it stay with: outspan node ack-blockers %s", inst.Node)
		}
	}
	return model.Refuse(model.CodeRoleNever, "instance %s of %s must not be evicted", inst.ID, inst.Group).
		WithHint("let it stay with: outspan node ack-blockers %s", inst.Node)
}

// Successor returns the instance that was placed to replace inst, or false if there is none or it should no longer run.
func (s *instances) Successor(inst *Instance) (*Instance, bool) {
	next, ok := s.Instances.Get(inst.Links.ReplacedBy)
	return next, ok && next.Desired == model.DesiredRunning
}

// Room returns nil if the claims' memory and ports are free on the node, or a refusal. Codes: no_capacity_memory,
// no_capacity_ports.
func (s *State) Room(n *Node, claims Claims) *model.Error { return s.roomWith(n, claims, nil, nil) }

// ClaimsOf returns what an instance of spec takes from its node, including Settings.InstanceOverhead.
func (s *rules) ClaimsOf(spec *model.GroupSpec, ports model.Ports) Claims {
	r := spec.Resources
	r.DiskBytes = 0 // a limit, not a claim
	r.MemoryBytes += s.Settings.InstanceOverhead
	return Claims{Resources: r, Ports: ports}
}

func (c *InstancePlace) apply(s *State) error {
	g, spec, node, refusal := wantedOn(s, c.Group, c.Version, c.Node)
	if refusal != nil {
		return refusal
	}
	switch {
	case !model.ValidName(string(c.ID)) || !c.Cause.Valid():
		return model.Refuse(model.CodeInvalid, "%q is no instance id, or %q no cause", c.ID, c.Cause)
	case s.Instances.Has(c.ID):
		return model.Refuse(model.CodeConflict, "the instance id %s is taken", c.ID)
	}
	if refusal := cmp.Or(s.TakesProgram(node, spec), s.hasImage(node, spec)); refusal != nil {
		return refusal
	}
	claims := s.ClaimsOf(spec, c.Ports)
	if refusal := portsMatch(spec, c.Ports); refusal != nil {
		return refusal
	}
	if refusal := s.mayAwait(c, node, claims); refusal != nil {
		return refusal
	}
	if refusal := s.roomWith(node, claims, c.Awaits, c.claimOf(s)); refusal != nil {
		return refusal
	}
	old, refusal := s.slotFree(c, g, spec)
	if refusal != nil {
		return refusal
	}
	if refusal := c.heldBack(s, old); refusal != nil {
		return refusal
	}
	if refusal := s.CheckQuota(jobOf(c.Group), claims.Resources, c.endedByPlacing(old)); refusal != nil {
		return refusal
	}
	s.place(c, g, node, spec, old, claims)
	return nil
}

// heldBack refuses the placements that a hold forbids, even if they were decided before the hold: preemptions, and
// replacements of instances that are lost or not ready. Code: mass_offline_hold.
func (c *InstancePlace) heldBack(s *State, old *Instance) *model.Error {
	switch {
	case !s.Hold.Active:
		return nil
	case len(c.Awaits) > 0:
		return model.Refuse(model.CodeHold, "a hold is set: nothing is stopped to make room for instance %s", c.ID)
	case old != nil && c.Cause == model.CauseCheckFailed && old.Status.Observed == model.ObservedUnready:
		return model.Refuse(model.CodeHold, "a hold is set: instance %s, which is not ready, is not replaced", old.ID)
	case old != nil && c.Cause == model.CauseNodeOffline && s.HoldsBack(old):
		return model.Refuse(model.CodeHold, "a hold is set: the lost instance %s is not replaced", old.ID)
	}
	return nil
}

// HoldsBack reports whether a hold keeps a lost instance from being replaced. It does not if there is a replacement
// already and its node is online but no longer active, because this replacement must move on to another node.
func (s *State) HoldsBack(lost *Instance) bool {
	if !s.Hold.Active || lost.Status.Observed != model.ObservedLost {
		return false
	}
	next, ok := s.Instances.Get(lost.Links.ReplacedBy)
	if !ok || next.Terminal() {
		return true
	}
	n, ok := s.Nodes.Get(next.Node)
	return !ok || n.Health != model.HealthOnline || n.Intent == model.IntentActive
}

// endedByPlacing returns the replaced instance if it has failed, or nil. The placement stops a failed instance at once,
// so the quota must not count it.
func (c *InstancePlace) endedByPlacing(old *Instance) *Instance {
	if old != nil && old.Desired == model.DesiredRunning && old.Status.Observed == model.ObservedFailed {
		return old
	}
	return nil
}

func portsMatch(spec *model.GroupSpec, ports model.Ports) *model.Error {
	for i, p := range spec.Ports {
		got, _ := ports.Get(p.Name)
		for _, other := range spec.Ports[:i] {
			if number, _ := ports.Get(other.Name); number == got {
				return model.Refuse(model.CodeInvalid, "ports %s and %s are both %d", other.Name, p.Name, got)
			}
		}
		if got < 1 || got > 65535 || p.Static != 0 && got != p.Static {
			return model.Refuse(model.CodeInvalid, "port %s must be %d, got %d", p.Name, p.Static, got)
		}
	}
	if len(ports) != len(spec.Ports) {
		return model.Refuse(model.CodeInvalid, "%d ports were given, the group has %d", len(ports), len(spec.Ports))
	}
	if !inOrder(ports) {
		return model.Refuse(model.CodeInvalid, "the ports are not in order of their names, or one is given twice")
	}
	return nil
}

// slotFree checks that the new instance may take its slot: the slot has no holder, or only the one that the new
// instance replaces. It returns the replaced instance, or nil. A slot above the group's count, as after a scale-down,
// only takes a replacement of its holder.
func (s *State) slotFree(c *InstancePlace, g *Group, spec *model.GroupSpec) (*Instance, *model.Error) {
	above := g.Role != model.RoleSystem && c.Slot >= g.Count
	if c.Slot < 0 || above && c.Replaces == "" {
		return nil, model.Refuse(model.CodeStale, "group %s has no slot %d", g.ID, c.Slot)
	}
	var old *Instance
	for inst := range s.InstancesInSlot(c.Group, c.Slot) {
		if inst.ID == c.Replaces {
			old = inst
		}
		if inst.Desired == model.DesiredRunning && inst.ID != c.Replaces {
			return nil, model.Refuse(model.CodeSlotTaken, "slot %d of %s is held by instance %s", c.Slot, c.Group, inst.ID)
		}
		if spec.OneHolder() && inst.holdsClaims() && !plant.Is(plant.ReplaceBeforeFencing) {
			return nil,
				model.Refuse(model.CodeVolumeInUse, "the volumes or the identity of slot %d of %s are in use by instance %s",
					c.Slot, c.Group, inst.ID)
		}
	}
	if c.Replaces != "" && (old == nil || above && old.Desired != model.DesiredRunning) {
		return nil,
			model.Refuse(model.CodeStale, "instance %s to be replaced is not in slot %d of %s", c.Replaces, c.Slot, c.Group)
	}
	if c.Cause == model.CauseNodeOffline && old != nil && old.Desired == model.DesiredRunning && old.runs() {
		// the replacement was decided before the old instance's node returned (S7)
		return nil, model.Refuse(model.CodeStale, "instance %s to be replaced is back: it is %s", old.ID, old.Status.Observed)
	}
	if refusal := cmp.Or(s.SlotUnsettled(spec, c.Group, c.Slot), s.slotHeld(spec, c.Group, c.Slot)); refusal != nil {
		return nil, refusal
	}
	if home, ok := s.VolumeHome(spec, c.Group, c.Slot); ok && home != c.Node {
		if refusal := s.MayRefill(spec, c.Group, c.Slot); refusal != nil {
			return nil, refusal
		}
	}
	if refusal := s.keepsApart(c, spec); refusal != nil {
		return nil, refusal
	}
	if g.Role == model.RoleSystem {
		for inst := range s.InstancesOn(c.Node) {
			if inst.Group == c.Group && inst.Desired == model.DesiredRunning && inst.ID != c.Replaces {
				return nil, model.Refuse(model.CodeSlotTaken, "node %s already runs instance %s of %s", c.Node, inst.ID, c.Group)
			}
		}
	}
	return old, nil
}

func (s *State) place(c *InstancePlace, g *Group, node *Node, spec *model.GroupSpec, old *Instance, claims Claims) {
	job, _ := s.Jobs.Get(jobOf(c.Group))
	cause, _ := c.Cause.Known()
	claims.Ports = portsOf(claims.Ports, spec)
	inst := &Instance{ // the strings share memory with those of other rows where possible
		ID: c.ID, Group: g.ID, Slot: c.Slot, Version: c.Version, Node: node.ID, Desired: model.DesiredRunning,
		Status: model.InstanceStatus{ID: c.ID, Observed: model.ObservedPending}, Cause: cause, Claims: claims,
		Links: Links{Replaces: c.Replaces, Attempt: g.Placed, HasVolumes: len(spec.Volumes) > 0,
			Awaits: slices.Clone(c.Awaits)},
		Marks: Marks{Created: s.Now, CreatedWall: s.Wall, CreatedIndex: s.Index, UnreadySince: s.Now},
	}
	if d, ok := s.Deployments.Get(job.Deployment); ok && !d.Status.Ended() && c.Version == g.Version {
		inst.Links.Deployment = d.ID
		inst.Links.WasReady = s.slotWasReady(inst)
	}
	if pull, ok := s.PullOf(g.ID, c.Slot); ok {
		s.setPull(pull, nil)
	}
	dropPullsAfter(s, c.Awaits)
	s.setInstance(nil, inst)
	s.claimVolumes(spec, inst)
	if old == nil && c.Cause == model.CauseNodeDraining {
		s.countReplaced(g.ID, c.Slot)
	}
	if old != nil {
		replaced := *old
		replaced.Links.ReplacedBy = c.ID
		s.setInstance(old, &replaced)
		if c.Cause == model.CauseCheckFailed && replaced.Desired == model.DesiredRunning &&
			replaced.Status.Observed == model.ObservedUnready {
			// The failure is noted even if the instance recovers before it is stopped. Otherwise an instance that always
			// recovers would be replaced again and again.
			s.noteFailure(&replaced, string(c.Cause))
		}
		if replaced.Desired == model.DesiredRunning && replaced.Status.Observed == model.ObservedFailed {
			s.setDesired(&replaced, model.DesiredStopped, c.Cause, "replaced by "+string(c.ID))
		}
	}
	if s.keepsEvents() {
		s.emit(Event{Type: model.EventAllocated, Subject: "instance/" + string(c.ID), Cause: cause,
			After: string(model.ObservedPending),
			Data: map[string]string{"node": string(node.ID), "group": string(g.ID), "slot": strconv.Itoa(c.Slot),
				"replaces": string(c.Replaces)}})
	}
}

// setDesired changes the desired state of an instance and emits an event. If a stop has begun already, its cause and
// reason are kept.
func (s *State) setDesired(inst *Instance, desired model.Desired, cause model.Cause, reason string) *Instance {
	return s.moveDesired(inst, desired, cause, reason, "")
}

// moveDesired is setDesired with a text for the event.
func (s *State) moveDesired(inst *Instance, desired model.Desired, cause model.Cause, reason, text string) *Instance {
	if inst.WaitsForRoom() {
		return s.endWaiting(inst, cause, reason)
	}
	next := *inst
	next.Desired = desired
	if next.Marks.StopCause == "" {
		next.Marks.StopCause, next.Marks.StopReason, next.Marks.StopBegan = cause, reason, s.Now
	}
	s.setInstance(inst, &next)
	data := map[string]string{"node": string(inst.Node), "group": string(inst.Group), "reason": reason}
	if cause == model.CausePreempted {
		data["by"] = next.Marks.StopReason // the preemptor
	}
	if text != "" {
		data["text"] = text
	}
	s.emit(Event{Type: model.EventDesired, Subject: "instance/" + string(inst.ID), Cause: cause,
		Before: string(inst.Desired), After: string(desired), Data: data})
	s.forgetOld(&next)
	return &next
}

// observe writes a new status from an agent or from the servers, and emits an event if the observed state changed.
func (s *State) observe(inst *Instance, status model.InstanceStatus) *Instance {
	next := *inst
	next.Status = status
	next.Status.ID = inst.ID
	moved := inst.Status.Observed != status.Observed
	if moved {
		s.markTimes(&next, inst)
	}
	reached := status.Observed == model.ObservedReady && next.Links.Deployment != "" && !next.Links.WasReady
	next.Links.WasReady = next.Links.WasReady || reached
	s.setInstance(inst, &next)
	if moved && s.keepsEvents() {
		s.emit(Event{Type: model.EventStatus, Subject: "instance/" + string(inst.ID), Before: string(inst.Status.Observed),
			After: string(status.Observed),
			Data:  map[string]string{"node": string(inst.Node), "group": string(inst.Group), "reason": status.Reason}})
	}
	if status.Restarts > inst.Status.Restarts && s.keepsEvents() {
		s.emit(Event{Type: model.EventRestarted, Subject: "instance/" + string(inst.ID), Data: restartData(&next)})
	}
	s.noteCopies(&next)
	if moved {
		s.noteUse(&next)
	}
	if moved && status.Observed == model.ObservedFailed {
		s.noteFailure(&next, status.Reason)
	}
	if reached {
		s.noteProgress(&next)
	}
	s.forgetOld(&next)
	return &next
}

func restartData(inst *Instance) map[string]string {
	data := map[string]string{"node": string(inst.Node), "group": string(inst.Group),
		"restarts": strconv.Itoa(inst.Status.Restarts)}
	if code := inst.Status.ExitCode; code != nil {
		data["exit_code"] = strconv.Itoa(*code)
	}
	return data
}

func (s *State) markTimes(next, before *Instance) {
	switch next.Status.Observed {
	case model.ObservedBooting:
		if next.Marks.StartedWall == 0 {
			next.Marks.StartedWall = s.Wall
		}
	case model.ObservedReady:
		next.Marks.ReadySince, next.Marks.UnreadySince = s.Now, 0
		return
	case model.ObservedDraining:
		if next.Marks.StopBegan != 0 && next.Marks.StopHeard == 0 {
			next.Marks.StopHeard = s.Now
		}
	}
	next.Marks.ReadySince = 0
	if next.Marks.UnreadySince == 0 || before.Status.Observed == model.ObservedReady {
		next.Marks.UnreadySince = s.Now
	}
	if next.Status.Observed == model.ObservedLost || next.Status.Observed == model.ObservedFailed {
		next.Marks.UnreadySince = s.Now
	}
}

// report stores a status of an instance that its agent sent in an epoch of its node. It ignores a late or repeated
// status, and never changes a terminal instance.
func (s *State) report(inst *Instance, status model.InstanceStatus, epoch uint64) {
	status.Epoch = epoch
	if !inst.acceptsStatus(status) {
		return
	}
	for _, observed := range [...]model.Observed{model.ObservedBooting, model.ObservedReady, model.ObservedUnready,
		model.ObservedDraining, model.ObservedStopped, model.ObservedFailed} {
		if status.Observed == observed { // only the servers set pending and lost
			status.Observed = observed // the constant, because a string of the entry would keep the whole entry in memory
			s.accept(inst, status)
			return
		}
	}
}

// acceptsStatus reports whether an agent's status of an instance replaces the known one. A status of a higher epoch
// does, and in the same epoch a status of a higher generation. A status of the same generation does if the instance was
// lost, or if the status only restores facts. A terminal instance and one that waits for room accept no status.
func (i *Instance) acceptsStatus(status model.InstanceStatus) bool {
	known := i.Status
	switch {
	case i.Terminal() || i.WaitsForRoom() || status.Observed == model.ObservedPending ||
		status.Observed == model.ObservedLost:
		// only the servers set pending and lost
		return false
	case status.Epoch != known.Epoch && !plant.Is(plant.GenerationsOnly):
		return status.Epoch > known.Epoch
	case status.Generation < known.Generation:
		return false
	case status.Generation == known.Generation:
		return known.Observed == model.ObservedLost || restoresFacts(known, status)
	}
	return true
}

// accept writes a status that an agent reported. An instance that should run and has stopped becomes failed, unless it
// stopped in entries that a restore lost (ReasonEnded). An instance that should not run and has failed becomes stopped.
func (s *State) accept(inst *Instance, status model.InstanceStatus) {
	if status.Observed == model.ObservedFailed && status.Reason == "" {
		status.Reason = "unknown"
	}
	if inst.Desired == model.DesiredRunning && status.Observed == model.ObservedStopped &&
		status.Reason != model.ReasonEnded {
		status.Observed, status.Reason = model.ObservedFailed, "exited"
	}
	if inst.Desired != model.DesiredRunning && status.Observed == model.ObservedFailed {
		status.Observed = model.ObservedStopped
	}
	keepReported(&inst.Status, &status)
	next := s.observe(inst, status)
	if next.Desired != model.DesiredStopped && next.Status.Observed == model.ObservedStopped {
		s.setDesired(next, model.DesiredStopped, cmp.Or(next.Marks.StopCause, model.CauseRestored),
			"the agent reports it stopped")
	}
	if next.Status.Observed == model.ObservedStopped {
		s.maybePurge(next.Group)
	}
}

// confirmStopped marks an instance as permanently stopped, without a report of its agent.
func (s *State) confirmStopped(inst *Instance, cause model.Cause, reason string) {
	status := inst.Status
	status.Observed, status.Reason = model.ObservedStopped, reason
	next := inst
	if !inst.WaitsForRoom() {
		next = s.observe(inst, status)
	}
	if next.Desired != model.DesiredStopped {
		s.setDesired(next, model.DesiredStopped, cause, reason)
	}
	s.maybePurge(inst.Group)
}
