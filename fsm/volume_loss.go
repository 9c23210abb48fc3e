package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

const namedVolumes = 10 // most volumes in the text of a refusal

// LostWith lists, in order of id, the local volumes whose data would be lost with a node: the node is their home, has
// data that they left behind, or has an old copy that may be their last copy.
func (s *State) LostWith(node model.NodeID) []model.VolumeID {
	var lost []model.VolumeID
	for id, v := range s.Volumes.All() {
		aside := slices.ContainsFunc(v.Aside, func(a AsideData) bool { return a.Node == node })
		if (v.Home == node || aside) && v.Kind == model.VolumeLocal && v.Copy == "" {
			lost = append(lost, id)
		}
	}
	for _, t := range s.Transfers.All() {
		if t.Left.Old == node && !t.Left.Drop && (s.homeMissing(t) != nil || s.gaveUp(t)) {
			lost = append(lost, t.Volumes()...)
		}
	}
	slices.Sort(lost)
	return slices.Compact(lost)
}

// homeMissing returns why the copy in use of a transfer's volumes can't be relied on now: it is lost, its home is not
// online, or its home has not reported yet what it has. It returns nil if that copy can be relied on. Code: conflict.
func (s *State) homeMissing(t *Transfer) *model.Error {
	for _, v := range s.slotVolumes(t.Group, t.Slot) {
		if !slices.Contains(t.Names, v.Name) {
			continue
		}
		home, ok := s.Nodes.Get(v.Home)
		if !ok {
			return model.Refuse(model.CodeConflict, "the data of volume %s is lost but for this copy", v.ID)
		}
		if home.Health != model.HealthOnline {
			return model.Refuse(model.CodeConflict, "the home of volume %s, node %s, is %s", v.ID, home.Name, home.Health)
		}
		if home.Return.Recovering {
			return model.Refuse(model.CodeConflict, "the home of volume %s, node %s, has returned and not told yet what it has",
				v.ID, home.Name)
		}
		if home.Restore.InventoryOwed { // what the state says may be outdated
			return model.Refuse(model.CodeConflict, "the home of volume %s, node %s, has not told since the restore what it has",
				v.ID, home.Name)
		}
	}
	return nil
}

// gaveUp reports whether the data that replaced a transfer's old copy was later given up or left behind. If so, the
// copy in use began empty.
func (s *moves) gaveUp(t *Transfer) bool {
	return slices.ContainsFunc(s.slotVolumes(t.Group, t.Slot), func(v *Volume) bool {
		i := slices.Index(t.Names, v.Name)
		if i < 0 {
			return false
		}
		newer := func(a AsideData) bool { return i >= len(t.Epochs) || a.Epoch > t.Epochs[i] }
		return v.Lost != nil && v.Lost.Index > t.Marks.Index || slices.ContainsFunc(v.Aside, newer)
	})
}

// NeedsOld returns why the old copy that a transfer left must be kept, whatever its age: a restore is not confirmed,
// the old copy is being attached, or the copy that replaced it is not reliable. A reliable copy has a home that can be
// relied on and a ready instance, and its data was not given up. NeedsOld returns nil if the old copy may be removed.
// Codes: restore_unconfirmed, conflict.
func (s *State) NeedsOld(t *Transfer) *model.Error {
	if plant.Is(plant.OldCopyByClock) {
		return nil
	}
	if s.Unconfirmed {
		return model.Refuse(model.CodeRestoreUnconfirmed,
			"a restore is not confirmed: what is in use may be another copy by now")
	}
	if refusal := s.homeMissing(t); refusal != nil {
		return refusal
	}
	if other, used := s.attaching(t.ID); used {
		return model.Refuse(model.CodeConflict, "transfer %s puts it to use again", other.ID)
	}
	if s.gaveUp(t) {
		return model.Refuse(model.CodeConflict, "the data that replaced it was given up: this may be the last copy").
			WithHint("put it to use: outspan volume attach %s@%s; or remove it: outspan volume cancel %s",
				t.Volume(), t.ID, t.ID)
	}
	if !s.provenCopy(t) { // Left.Proven is not enough: the disk may have failed since
		return model.Refuse(model.CodeConflict, "no instance of slot %d of %s is ready on the copy that is in use",
			t.Slot, t.Group)
	}
	return nil
}

// provenCopy reports whether an instance is ready on the volumes in use of the transfer's slot.
func (s *State) provenCopy(t *Transfer) bool {
	for inst := range s.InstancesInSlot(t.Group, t.Slot) {
		for _, v := range s.slotVolumes(t.Group, t.Slot) {
			if inst.Ready() && inst.Links.HasVolumes && inst.Node == v.Home {
				return true
			}
		}
	}
	return false
}

// mayLose refuses to forget a node if data would be lost with it, unless the list given contains the group of each lost
// volume. It also refuses if given contains a group that would lose nothing. Code: conflict.
func (s *State) mayLose(n *Node, given []model.GroupID) *model.Error {
	var kept []model.VolumeID
	var flags strings.Builder
	named := map[model.GroupID]bool{}
	for _, id := range s.LostWith(n.ID) {
		group := groupOfVolume(id)
		if slices.Contains(given, group) {
			named[group] = true
			continue
		}
		kept = append(kept, id)
		if flag := " --lose-data " + string(group); !strings.Contains(flags.String()+" ", flag+" ") {
			flags.WriteString(flag)
		}
	}
	if len(kept) > 0 {
		return model.Refuse(model.CodeConflict, "node %s has the data of %s", n.Name, listVolumes(kept)).
			WithHint("bring the node back, or restore backups elsewhere: outspan volume restore BACKUP --node NODE --attach; "+
				"to give the data up: outspan node forget %s%s", n.Name, flags.String())
	}
	for _, group := range given {
		if !named[group] {
			return model.Refuse(model.CodeConflict, "node %s has no data of %q that would be lost", n.Name, group).
				WithHint("name the groups that a dry run lists: outspan node forget %s --dry-run", n.Name)
		}
	}
	return nil
}

func groupOfVolume(id model.VolumeID) model.GroupID {
	parts := strings.SplitN(string(id), "/", 3)
	return model.GroupID(parts[0] + "/" + parts[1])
}

func listVolumes(ids []model.VolumeID) string {
	texts := make([]string, 0, namedVolumes)
	for _, id := range ids[:min(len(ids), namedVolumes)] {
		texts = append(texts, string(id))
	}
	text := strings.Join(texts, ", ")
	if more := len(ids) - namedVolumes; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// loseVolumes records that the data of the local volumes whose home is a node is lost. The rows stay, so that a slot
// that starts empty again can be distinguished from one that never had data.
func (s *State) loseVolumes(n *Node) {
	var rows []*Volume
	for _, v := range s.Volumes.All() {
		if v.Home == n.ID && v.Kind == model.VolumeLocal && v.Copy == "" {
			rows = append(rows, v)
		}
	}
	for _, v := range rows {
		next := *v
		next.Home, next.Lost = "", &VolumeLoss{Node: n.Name, Actor: s.entry.actor, Index: s.Index, Wall: s.Wall}
		s.putVolume(&next)
		s.touch("volumes")
		s.touchJob(jobOf(next.Group))
		s.emit(Event{Type: model.EventVolume, Subject: "volume/" + string(next.ID), Before: "in_use", After: "lost",
			Data: map[string]string{"node": n.Name, "text": "its data was given up when its home was forgotten"}})
	}
}
