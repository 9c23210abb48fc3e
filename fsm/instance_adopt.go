package fsm

import (
	"cmp"
	"slices"

	"github.com/outspan/outspan/model"
)

// InstanceAdopt creates the row of an instance that a restore has lost, if no other instance can hold its slot. The
// instance keeps running, and its data becomes the newest of its volumes. Codes: not_found, restore_unconfirmed,
// inventory_missing, slot_taken (another instance holds the slot, or may hold it), volume_in_use (a transfer works on
// its volumes), stale (the instance must stop, its node is offline, its data is older than that of the volumes or newer
// than the state, or no kept version has its spec), anti_affinity_unsatisfied, no_capacity_memory, no_capacity_ports.
type InstanceAdopt struct {
	ID model.InstanceID `cbor:"1,keyasint"`
}

// Kept lists the unknown instances that keep running (see Keeps), in order of node and id.
func (s *State) Kept() []model.InstanceID {
	var list []model.InstanceID
	for id := range s.restoring.All() {
		n, _ := s.Nodes.Get(id)
		for _, h := range n.Restore.Unknown {
			if s.Keeps(h) {
				list = append(list, h.ID)
			}
		}
	}
	return list
}

// adoption returns the placement that gives an unknown instance its row. It does not check the room on the node. Codes:
// those of InstanceAdopt except no_capacity_memory and no_capacity_ports.
func (s *State) adoption(id model.InstanceID) (*InstancePlace, *model.Error) {
	node, h, ok := s.UnknownOn(id)
	switch {
	case !ok || s.Instances.Has(id):
		return nil, model.Refuse(model.CodeNotFound, "there is no unknown instance %s", id)
	case s.Unconfirmed:
		return nil, model.Refuse(model.CodeRestoreUnconfirmed, "a restore is not confirmed")
	case node.Health == model.HealthOffline || !s.Keeps(h):
		return nil, model.Refuse(model.CodeStale, "instance %s is not to be kept", id)
	}
	for other := range s.restoring.All() {
		n, _ := s.Nodes.Get(other)
		if n.Restore.InventoryOwed {
			return nil,
				model.Refuse(model.CodeInventoryMissing,
					"the agent of node %s has not told since the restore what runs there", n.Name)
		}
		if o, ok := s.blocker(n, h.Group, h.Slot, id); ok {
			return nil, model.Refuse(model.CodeSlotTaken, "slot %d of %s may also be held by instance %s on node %s",
				h.Slot, h.Group, o.ID, n.Name)
		}
	}
	if t, ok := s.TransferOf(h.Group, h.Slot); ok && t.Phase.Attached() && !usesTransfer(h, t) {
		return nil, model.Refuse(model.CodeVolumeInUse, "transfer %s works on volume %s", t.ID, t.Volume())
	}
	if slices.ContainsFunc(h.Copies, func(e model.VolumeEpoch) bool { return e.Epoch >= s.MomentNumber() }) {
		return nil, model.Refuse(model.CodeStale, "the data of instance %s is newer than the state", id)
	}
	version, ok := s.versionOf(h)
	if !ok {
		return nil, model.Refuse(model.CodeStale, "no version of %s is what instance %s runs", h.Group, id)
	}
	spec, _ := s.Spec(h.Group, version)
	if refusal := s.newest(spec, h, node.ID); refusal != nil {
		return nil, refusal
	}
	c := &InstancePlace{ID: id, Group: h.Group, Slot: h.Slot, Version: version, Node: node.ID, Ports: h.Ports,
		Cause: model.CauseRestored}
	for inst := range s.InstancesInSlot(h.Group, h.Slot) {
		if inst.holdsClaims() {
			return nil, model.Refuse(model.CodeSlotTaken, "slot %d of %s is held by instance %s", h.Slot, h.Group, inst.ID)
		}
	}
	if refusal := s.keepsApart(c, spec); refusal != nil {
		return nil, refusal
	}
	return c, nil
}

// usesTransfer reports whether an unknown instance runs on a volume of t, a transfer whose copy is in use already. Such
// an instance was started in entries that the restore lost, on the data that t attached or on newer data. newest
// refuses an instance with older data.
func usesTransfer(h model.Holding, t *Transfer) bool {
	return slices.ContainsFunc(h.Copies, func(e model.VolumeEpoch) bool { return slices.Contains(t.Names, e.Name) })
}

// newest refuses an unknown instance on a node if the state knows newer data of one of the instance's volumes, or data
// of the same epoch on another node. Code: stale.
func (s *State) newest(spec *model.GroupSpec, h model.Holding, node model.NodeID) *model.Error {
	for _, v := range spec.Volumes {
		row, known := s.Volumes.Get(volumeOf(&Instance{Group: h.Group, Slot: h.Slot, Node: node}, v))
		if !known {
			continue
		}
		var epoch uint64
		if i := slices.IndexFunc(h.Copies, func(e model.VolumeEpoch) bool { return e.Name == v.Name }); i >= 0 {
			epoch = h.Copies[i].Epoch
		}
		if epoch < row.Made || epoch == row.Made && row.Home != node {
			return model.Refuse(model.CodeStale,
				"instance %s does not run on the newest data of volume %s: its data is of epoch %d, the newest of epoch %d",
				h.ID, row.ID, epoch, row.Made).
				WithHint("to stop it, so that the slot is filled anew: outspan instance stop %s", h.ID)
		}
	}
	return nil
}

// versionOf returns the newest version of a group that has the spec of an unknown instance. It returns false if no kept
// version has this spec, or if the instance's ports don't match it.
func (s *jobs) versionOf(h model.Holding) (version uint64, ok bool) {
	g, _ := s.Groups.Get(h.Group)
	for v := g.Version; v > 0 && h.Spec != ""; v-- {
		spec, known := s.Spec(h.Group, v)
		if !known {
			break // this version and all older ones were dropped
		}
		if spec.Digest() == h.Spec {
			return v, portsMatch(spec, h.Ports) == nil
		}
	}
	return 0, false
}

func (c *InstanceAdopt) apply(s *State) error {
	place, refusal := s.adoption(c.ID)
	if refusal != nil {
		return refusal
	}
	node, h, _ := s.UnknownOn(c.ID)
	g, _ := s.Groups.Get(place.Group)
	spec, _ := s.Spec(place.Group, place.Version)
	claims := s.ClaimsOf(spec, place.Ports)
	if refusal := s.roomWith(node, claims, nil, place.claimOf(s)); refusal != nil {
		return refusal
	}
	if t, ok := s.TransferOf(place.Group, place.Slot); ok { // t can't continue, because the instance uses the volumes
		s.failTransfer(t, model.CodeVolumeInUse,
			"instance "+string(c.ID)+" uses the volumes, which a restore had lost from the state")
	}
	s.adoptVolumes(spec, h, node.ID)
	s.place(place, g, node, spec, nil, claims)
	adopted, _ := s.Instances.Get(c.ID)
	next := *adopted
	next.Links.RestartSeq = h.RestartSeq
	s.setInstance(adopted, &next)
	// Not pending, because the instance runs: its role and its gates must be respected. Until its agent reports a status,
	// statusKnown refuses decisions that depend on the status.
	s.observe(&next, model.InstanceStatus{Observed: model.ObservedBooting})
	node, _ = s.Nodes.Get(node.ID)
	left := node.Restore
	left.Unknown = slices.DeleteFunc(slices.Clone(left.Unknown), func(o model.Holding) bool { return o.ID == c.ID })
	s.setRestore(node, left)
	return nil
}

// statusKnown refuses a decision that depends on the status of an adopted instance, until its agent has reported a
// status: the instance may be ready, may lead, or may have a hook. Code: inventory_missing.
func (i *Instance) statusKnown() *model.Error {
	// a status that an agent has reported has the epoch of its node, which is not 0
	if i.Status.Observed != model.ObservedBooting || i.Status.Epoch != 0 {
		return nil
	}
	return model.Refuse(model.CodeInventoryMissing,
		"instance %s was lost from the state by a restore and taken over; its agent has not told yet how it is", i.ID).
		WithHint("try again; its agent tells within seconds")
}

// adoptVolumes records the data that an adopted instance runs on as the newest data of its volumes.
func (s *moves) adoptVolumes(spec *model.GroupSpec, h model.Holding, node model.NodeID) {
	for _, v := range spec.Volumes {
		i := slices.IndexFunc(h.Copies, func(e model.VolumeEpoch) bool { return e.Name == v.Name })
		if i < 0 {
			continue
		}
		row := Volume{ID: volumeOf(&Instance{Group: h.Group, Slot: h.Slot, Node: node}, v), Group: h.Group, Slot: h.Slot,
			Name: v.Name, Kind: v.Kind}
		if old, known := s.Volumes.Get(row.ID); known {
			row = *old
		}
		row.Home, row.Made, row.Held = node, cmp.Or(h.Copies[i].Epoch, row.Made), true
		s.putVolume(&row)
	}
}
