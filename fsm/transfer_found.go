package fsm

import (
	"slices"

	"github.com/outspan/outspan/model"
)

// planFound fills in the attachment of data on a node's disk that the state does not know. Either a restored state is
// older than the data, or the data was given up with a node that returned. When the transfer runs, the agent first
// checks that the data exists.
func (s *State) planFound(t *Transfer, c *TransferStart) *model.Error {
	group, slot, name, refusal := splitVolumeID(c.Volume)
	if refusal != nil {
		return refusal
	}
	if len(c.Found) > maxHoldingParts {
		return model.Refuse(model.CodeInvalid, "%d volumes are more than the %d that a slot can have",
			len(c.Found), maxHoldingParts)
	}
	t.Group, t.Slot = group, slot
	found := slices.Clone(c.Found)
	// the volume that the request named comes first
	slices.SortFunc(found, func(a, b model.VolumeEpoch) int { return count(b.Name == name) - count(a.Name == name) })
	for _, v := range found {
		if !model.ValidName(v.Name) || v.Epoch == 0 || slices.Contains(t.Names, v.Name) {
			return model.Refuse(model.CodeInvalid, "volume %q with epoch %d can't be attached to slot %d of %s",
				v.Name, v.Epoch, slot, group)
		}
		t.Names, t.Found = append(t.Names, v.Name), append(t.Found, v.Epoch)
	}
	if t.Names[0] != name {
		return model.Refuse(model.CodeInvalid, "the epoch of volume %s is missing", c.Volume)
	}
	policy, ok := s.Policy(group)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no group %s", group).WithHint("run its job first")
	}
	if refusal := s.SlotUnsettled(policy, group, slot); refusal != nil {
		return refusal
	}
	if refusal := s.foundElsewhere(t); refusal != nil {
		return refusal
	}
	return s.planReplace(t)
}

// slotRuns reports whether a program of a slot runs. If so, the data at the volumes' home is certainly in use.
// Otherwise the agent may have put the data aside, because a restored state may not know that the volumes were moved
// away.
func (s *instances) slotRuns(group model.GroupID, slot int) bool {
	for inst := range s.InstancesInSlot(group, slot) {
		if oneOf(inst.Status.Observed, model.ObservedReady, model.ObservedUnready, model.ObservedDraining) {
			return true
		}
	}
	return false
}

// foundElsewhere refuses to attach data that is in use already, or that is kept as an old copy. Code: conflict.
func (s *State) foundElsewhere(t *Transfer) *model.Error {
	for i, id := range t.Volumes() {
		if v, ok := s.Volumes.Get(id); ok && v.Home == t.To && v.Made == t.Found[i] && s.slotRuns(t.Group, t.Slot) {
			return model.Refuse(model.CodeConflict, "the data of epoch %d is what volume %s has in use", v.Made, id)
		}
	}
	if by, ok := s.KeptBy(t.Group, t.Slot, t.To, model.VolumeEpoch{Name: t.Names[0], Epoch: t.Found[0]}); ok {
		return model.Refuse(model.CodeConflict, "the data of epoch %d is the old copy that transfer %s left",
			t.Found[0], by.ID).
			WithHint("to put it to use: outspan volume attach %s@%s", t.Volume(), by.ID)
	}
	return nil
}

// KeptBy returns the transfer that left data on a node as an old copy of a slot's volume, if there is one.
func (s *moves) KeptBy(group model.GroupID, slot int, node model.NodeID, data model.VolumeEpoch) (*Transfer, bool) {
	for _, t := range s.Transfers.All() {
		if t.Group != group || t.Slot != slot || t.Left.Old != node {
			continue
		}
		if i := slices.Index(t.Names, data.Name); i >= 0 && i < len(t.Epochs) && t.Epochs[i] == data.Epoch {
			return t, true
		}
	}
	return nil, false
}
