package fsm

import (
	"strconv"
	"strings"

	"github.com/outspan/outspan/model"
)

// Volume is per-instance data on a node. A local volume has a single copy, on its home node. A replicated volume has a
// copy for each member, and each copy has its own row. The row of a copy may outlive the instance that made it: a copy
// that was kept where its instance stopped is still a member.
type Volume struct {
	ID    model.VolumeID   `cbor:"1,keyasint"`
	Group model.GroupID    `cbor:"2,keyasint"`
	Slot  int              `cbor:"3,keyasint"`
	Name  string           `cbor:"4,keyasint"`
	Kind  model.VolumeKind `cbor:"5,keyasint"`
	Home  model.NodeID     `cbor:"6,keyasint"` // empty if the data is lost and no instance has started since
	// Made is the epoch of the data: the index at which the data began, empty or as a verified copy. The bits above
	// mintBits contain the incarnation, because indexes repeat after a restore. With the epoch, the agent distinguishes
	// current data on its disk from older data.
	Made uint64 `cbor:"7,keyasint,omitempty"`
	// Held says that there is data to lose: a replicated copy was in sync at least once, or a program ran on a local
	// volume.
	Held bool        `cbor:"8,keyasint,omitempty"`
	Lost *VolumeLoss `cbor:"9,keyasint,omitempty"` // the last loss of its data; only for a local volume
	// Aside lists data that the slot left behind when it started empty elsewhere, the oldest first.
	Aside []AsideData `cbor:"10,keyasint,omitempty"`

	Transfer model.TransferID `cbor:"20,keyasint,omitempty"` // the running transfer of the volume
	// for a restored volume that is not in use, the transfer that restored it
	Copy model.TransferID `cbor:"21,keyasint,omitempty"`
}

// VolumeLoss records who gave up the data of a volume by forgetting a node.
type VolumeLoss struct {
	Node  string      `cbor:"1,keyasint"` // name of the forgotten node
	Actor model.Actor `cbor:"2,keyasint"`
	Index uint64      `cbor:"3,keyasint"`
	Wall  int64       `cbor:"4,keyasint"`
}

// splitVolumeID splits the id of a local volume in use into its parts. Code: invalid.
func splitVolumeID(id model.VolumeID) (group model.GroupID, slot int, name string, refusal *model.Error) {
	parts := strings.Split(string(id), "/")
	if len(parts) == 4 {
		slot, err := strconv.Atoi(parts[2])
		if group := model.NewGroupID(model.JobName(parts[0]), parts[1]); err == nil && slot >= 0 &&
			model.NewVolumeID(group, slot, parts[3]) == id {
			return group, slot, parts[3], nil
		}
	}
	return "", 0, "", model.Refuse(model.CodeInvalid, "%q is no volume: write JOB/GROUP/SLOT/NAME", id)
}

// NewCopyID returns the id of the copy of a slot's replicated volume on a node.
func NewCopyID(group model.GroupID, slot int, name string, node model.NodeID) model.VolumeID {
	return model.NewVolumeID(group, slot, name) + "@" + model.VolumeID(node)
}

// VolumeHome returns the node that has the local volumes of a slot. It returns false if the group has no local volumes,
// or if the slot never had any, or if they are lost. It also looks at volumes that are only in another version of the
// group, because all volumes of a slot stay together.
func (s *moves) VolumeHome(spec *model.GroupSpec, group model.GroupID, slot int) (model.NodeID, bool) {
	if !spec.HasVolume(model.VolumeLocal) {
		return "", false
	}
	for _, row := range s.slotVolumes(group, slot) {
		if row.Home != "" {
			return row.Home, true
		}
	}
	return "", false
}

// keepsKinds refuses a new version that changes the kind of a volume, because the data that disks have under the
// volume's name would not be what the new program expects. Code: conflict.
func (s *State) keepsKinds(id model.GroupID, g *model.GroupSpec) *model.Error {
	for _, v := range g.Volumes {
		kind := v.Kind
		if now, ok := s.Policy(id); ok {
			for _, old := range now.Volumes {
				if old.Name == v.Name {
					kind = old.Kind
				}
			}
		}
		for _, row := range s.Volumes.From(model.VolumeID(id + "/")) {
			if row.Group != id {
				break
			}
			if row.Name == v.Name && row.Kind != v.Kind {
				kind = row.Kind
			}
		}
		if kind != v.Kind {
			return model.Refuse(model.CodeConflict, "volume %s of %s is %s and can't become %s", v.Name, id, kind, v.Kind).
				WithHint("give the %s volume another name; the data of the old one stays where it is", v.Kind)
		}
	}
	return nil
}

// claimVolumes makes the node of an instance the home of the instance's new and lost volumes. If the group refills
// empty members, volumes with another home are left behind and also start empty on this node. A copy that was kept on
// the node is used again.
func (s *State) claimVolumes(spec *model.GroupSpec, inst *Instance) {
	if spec.Refills() {
		s.leaveBehind(inst)
	}
	for _, v := range spec.Volumes {
		row := Volume{ID: volumeOf(inst, v), Group: inst.Group, Slot: inst.Slot, Name: v.Name, Kind: v.Kind,
			Home: inst.Node, Made: s.volumeEpoch()}
		old, known := s.Volumes.Get(row.ID)
		switch {
		case !known:
			row.Transfer = s.transferNaming(row.ID)
		case old.Home == "": // lost, so it starts empty here
			row.Lost, row.Transfer, row.Aside = old.Lost, old.Transfer, old.Aside
		default:
			continue
		}
		s.putVolume(&row)
	}
}

// volumeEpoch returns the epoch of data that begins in the entry being applied. It is higher than all earlier epochs.
func (s *State) volumeEpoch() uint64 { return s.MomentNumber() }

// volumeOf returns the id of the volume that an instance uses for v.
func volumeOf(inst *Instance, v model.VolumeSpec) model.VolumeID {
	if v.Kind == model.VolumeReplicated {
		return NewCopyID(inst.Group, inst.Slot, v.Name, inst.Node)
	}
	return model.NewVolumeID(inst.Group, inst.Slot, v.Name)
}

// dropVolumes removes the rows of the volumes for which gone returns true.
func (s *moves) dropVolumes(gone func(*Volume) bool) {
	var rows []*Volume
	for _, v := range s.Volumes.All() {
		if gone(v) {
			rows = append(rows, v)
		}
	}
	for _, v := range rows {
		s.delVolume(v.ID)
	}
}

// CopiesOf returns the copies of a slot's first replicated volume, one for each node that has one, in order of node.
func (s *moves) CopiesOf(group model.GroupID, slot int) []*Volume {
	var copies []*Volume
	prefix := model.NewVolumeID(group, slot, "")
	for id, v := range s.Volumes.From(prefix) {
		if len(id) < len(prefix) || id[:len(prefix)] != prefix {
			break
		}
		if v.Kind == model.VolumeReplicated && (len(copies) == 0 || copies[0].Name == v.Name) {
			copies = append(copies, v)
		}
	}
	return copies
}

// CopiesUsed returns the epochs of the data in the volumes that an instance uses. The keys are the names of the
// volumes. held lists the local volumes on which a program has run: their directories must exist.
func (s *State) CopiesUsed(inst *Instance) (epochs map[string]uint64, held []string) {
	spec, ok := s.Spec(inst.Group, inst.Version)
	if !ok || !inst.Links.HasVolumes {
		return nil, nil
	}
	epochs = map[string]uint64{}
	for _, v := range spec.Volumes {
		row, ok := s.Volumes.Get(volumeOf(inst, v))
		if !ok || row.Home != inst.Node {
			continue
		}
		epochs[v.Name] = row.Made
		if row.Held && row.Kind == model.VolumeLocal {
			held = append(held, v.Name)
		}
	}
	return epochs, held
}

// noteCopies updates the rows of replicated copies when an instance's status changes. If the instance is in sync, it
// records that the copy has data. If the instance is in sync or has stopped, it also forgets the slot's copies that
// nothing needs any more.
func (s *State) noteCopies(inst *Instance) {
	spec, ok := s.Spec(inst.Group, inst.Version)
	if !ok || !inst.Links.HasVolumes || !spec.Replicated() {
		return
	}
	if inst.Eviction.Automatic && !inst.holdsClaims() {
		s.touch("nodes", Topic("node/"+inst.Node))
	}
	synced := inst.Ready() && inst.Status.Facts[model.FactInSync] == "true"
	if synced {
		s.holdCopies(inst)
	}
	if synced || !inst.holdsClaims() {
		s.settleCopies(inst.Group, inst.Slot)
	}
}

// noteUse records that a program runs on an instance's local volumes.
func (s *State) noteUse(inst *Instance) {
	spec, ok := s.Spec(inst.Group, inst.Version)
	if ok && inst.Links.HasVolumes && spec.HasVolume(model.VolumeLocal) &&
		oneOf(inst.Status.Observed, model.ObservedBooting, model.ObservedReady, model.ObservedUnready) {
		s.holdCopies(inst)
	}
}

// holdCopies records that the volumes of an instance contain data.
func (s *State) holdCopies(inst *Instance) {
	spec, _ := s.Spec(inst.Group, inst.Version)
	for _, v := range spec.Volumes {
		row, ok := s.Volumes.Get(volumeOf(inst, v))
		if ok && !row.Held && row.Home == inst.Node {
			next := *row
			next.Held = true
			s.putVolume(&next)
		}
	}
}

// settleCopies forgets the copies of a slot that no instance uses and nothing needs. If an instance of the slot is in
// sync, these are all copies on other nodes. If the group no longer has the slot, these are the copies for which
// another node has a protected member. The agents delete nothing: the data stays on the disks until somebody removes
// it.
func (s *State) settleCopies(group model.GroupID, slot int) {
	g, ok := s.Groups.Get(group)
	if !ok {
		return
	}
	var newest *Instance
	used := map[model.NodeID]bool{}
	for inst := range s.InstancesInSlot(group, slot) {
		if inst.holdsClaims() {
			used[inst.Node] = true
		}
		if inst.Ready() && inst.Status.Facts[model.FactInSync] == "true" {
			newest = inst
		}
	}
	above := g.Count > 0 && slot >= g.Count
	var unused []*Volume
	prefix := model.NewVolumeID(group, slot, "")
	for id, v := range s.Volumes.From(prefix) {
		if len(id) < len(prefix) || id[:len(prefix)] != prefix {
			break
		}
		replaced := newest != nil && newest.Node != v.Home
		if v.Kind == model.VolumeReplicated && !used[v.Home] && (replaced || above && !s.last(group, v.Home, "")) {
			unused = append(unused, v)
		}
	}
	for _, v := range unused {
		s.delVolume(v.ID)
	}
}
