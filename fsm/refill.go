package fsm

import (
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

// maxAside is the most entries in a volume's list of data left behind. A new entry pushes out the oldest one, whose
// data stays on its node's disk but is no longer known to the state.
const maxAside = 8

// AsideData is data of a volume that was left on a node when its slot started empty on another node. No instance uses
// the data again automatically.
type AsideData struct {
	Node  model.NodeID `cbor:"1,keyasint"`
	Epoch uint64       `cbor:"2,keyasint"` // see Volume.Made
	Wall  int64        `cbor:"3,keyasint"` // when it was left, Unix ms
}

// MayRefill returns nil if the data of a slot has no home, or if the slot may start with empty volumes on a node other
// than that home. It may if the group refills empty members, and under two more conditions. If a program ran on the
// volumes, their home must be out of use. If the slot ever had data, enough other members must be ready to fill the
// empty one. The placement checks separately that the slot's last instance has stopped.
//
// Codes: volume_locality_no_node if the slot must stay where its data is, volume_in_use, quorum_not_healthy.
func (s *State) MayRefill(spec *model.GroupSpec, group model.GroupID, slot int) *model.Error {
	id, ok := s.VolumeHome(spec, group, slot)
	home, known := s.Nodes.Get(id)
	if !ok || !known {
		return nil
	}
	gone := home.Intent == model.IntentDisabled || s.emptiedByDrain(home) ||
		home.Health == model.HealthOffline && (home.Return.ConfirmedDead || spec.Fenced())
	used, first := s.slotUsed(group, slot)
	stays := model.Refuse(model.CodeVolumeNoNode, "the volumes of slot %d of %s are on node %s", slot, group, id)
	if !spec.Refills() || !gone && used {
		return stays
	}
	if t, busy := s.TransferOf(group, slot); busy {
		return model.Refuse(model.CodeVolumeInUse, "transfer %s works on the volumes of slot %d of %s", t.ID, slot, group)
	}
	if first {
		return nil // the slot never had data
	}
	g, _ := s.Groups.Get(group)
	ready, need := s.readyBeside(group, slot), g.fillers()
	switch {
	case ready < need && !gone:
		return stays
	case ready < need:
		return model.Refuse(model.CodeQuorumNotHealthy, "an empty member of %s is filled by the others: %d ready, %d needed",
			group, ready, need).
			WithHint("wait for them; or bring node %s back into use, which has the data of slot %d", home.Name, slot)
	}
	return nil
}

// slotUsed returns used, which is true if a program ran on a volume of a slot, and first, which is true if the slot
// never had data. No program ran if the instance failed to start or waited for room, or if its node was lost before the
// start. Such a slot leaves no data behind.
func (s *moves) slotUsed(group model.GroupID, slot int) (used, first bool) {
	first = true
	for _, v := range s.slotVolumes(group, slot) {
		used = used || v.Held
		first = first && !v.Held && v.Lost == nil && len(v.Aside) == 0
	}
	return used, first
}

// emptiedByDrain reports whether a drain is emptying a node or has emptied it. A drain that was canceled or failed
// moves nothing more.
func (s *fleet) emptiedByDrain(n *Node) bool {
	d, ok := s.Drains.Get(n.Drain)
	if !ok || n.Intent != model.IntentDraining {
		return false
	}
	part, _ := d.Node(n.ID)
	return oneOf(part.Phase, model.PhaseDraining, model.PhaseDrained)
}

// fillers returns how many other members must be ready before one member starts empty. It is a majority of the group,
// or all other members if they are fewer than a majority, but at least 1.
func (g *Group) fillers() int { return max(1, min(g.Count-1, g.Count/2+1)) }

// readyBeside returns how many other slots of a group have a ready instance on an online node. It ignores an instance
// that reports that it is not in sync, because such an instance can fill no other member.
func (s *State) readyBeside(group model.GroupID, slot int) int {
	ready := map[int]bool{}
	for inst := range s.InstancesOf(group) {
		n, ok := s.Nodes.Get(inst.Node)
		if inst.Slot != slot && inst.Ready() && inst.Status.Facts[model.FactInSync] != "false" && ok &&
			n.Health == model.HealthOnline && !n.unheard() {
			ready[inst.Slot] = true
		}
	}
	return len(ready)
}

// leaveBehind moves the home of a slot's volumes to the node of inst, where inst starts with empty volumes. The old
// data stays on the disk of the old home, under the old epoch.
func (s *State) leaveBehind(inst *Instance) {
	for _, v := range s.slotVolumes(inst.Group, inst.Slot) {
		if v.Home == "" || v.Home == inst.Node {
			continue
		}
		next := *v
		if v.Held {
			next.Aside = append(slices.Clone(v.Aside), AsideData{v.Home, v.Made, s.Wall})
			next.Aside = next.Aside[max(0, len(next.Aside)-maxAside):]
		}
		next.Home, next.Made, next.Held = inst.Node, s.volumeEpoch(), false
		s.putVolume(&next)
		s.touch("volumes")
		s.emit(Event{Type: model.EventVolume, Subject: "volume/" + string(v.ID), Before: "in_use", After: "aside",
			Data: map[string]string{"node": string(v.Home), "text": "the slot began anew on node " + string(inst.Node) +
				"; its data is left behind"}})
	}
}

// withoutAside returns v without the entry of Aside for one epoch of data on a node. If epoch is 0, it removes all
// entries for that node.
func (v Volume) withoutAside(node model.NodeID, epoch uint64) Volume {
	v.Aside = slices.DeleteFunc(slices.Clone(v.Aside), func(a AsideData) bool {
		return a.Node == node && (epoch == 0 || a.Epoch == epoch)
	})
	if len(v.Aside) == 0 {
		v.Aside = nil // as in a decoded row
	}
	return v
}

// forgetAside removes the data that volumes left behind on a node from their lists, because the node is being
// forgotten. It records the loss. name is the name of the node.
func (s *State) forgetAside(node model.NodeID, name string) {
	var rows []*Volume
	for _, v := range s.Volumes.All() {
		if slices.ContainsFunc(v.Aside, func(a AsideData) bool { return a.Node == node }) {
			rows = append(rows, v)
		}
	}
	for _, v := range rows {
		next := v.withoutAside(node, 0)
		if next.Home != "" { // a volume without a home already has its loss recorded
			// Without the data left behind, an old copy that a transfer left may be the last copy. The recorded loss keeps that
			// copy; see gaveUp.
			next.Lost = &VolumeLoss{Node: name, Actor: s.entry.actor, Index: s.Index, Wall: s.Wall}
		}
		s.putVolume(&next)
	}
}

// SlotsThatDiffer lists, in order, the slots of a group that may differ from a slot that never had an instance. Usually
// these are the slots with volumes or claims (Pull). They are all slots below count if the instances of the group hold
// their slots (see holdsSlot) and the state may lack one of these instances. The list is never nil.
func (s *State) SlotsThatDiffer(group model.GroupID, count int) []int {
	slots := []int{}
	if s.holdsSlots(group) && (s.Unconfirmed || s.mayBeHeld(group)) {
		for n := range count {
			slots = append(slots, n)
		}
		return slots
	}
	prefix := string(group) + "/"
	for id, v := range s.Volumes.From(model.VolumeID(prefix)) {
		if !strings.HasPrefix(string(id), prefix) {
			break
		}
		slots = append(slots, v.Slot)
	}
	for c := range s.PullsOf(group) {
		slots = append(slots, c.Slot)
	}
	slices.Sort(slots)
	return slices.Compact(slots)
}

// mayBeHeld reports whether an instance that the state does not know may hold a slot of a group.
func (s *State) mayBeHeld(group model.GroupID) bool {
	for id := range s.restoring.All() {
		if n, _ := s.Nodes.Get(id); s.mayBlock(n, group) {
			return true
		}
	}
	return false
}

// holdsSlots reports whether holdsSlot is true for any kept version of a group.
func (s *jobs) holdsSlots(group model.GroupID) bool {
	job := jobOf(group)
	for _, v := range s.Versions.From(versionKey(job, 0)) {
		if v.Job != job {
			break
		}
		if spec, ok := s.Spec(group, v.Version); ok && holdsSlot(spec) {
			return true
		}
	}
	return false
}
