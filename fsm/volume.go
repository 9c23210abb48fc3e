package fsm

import "fmt"

// VolumeID is "job/group/slot/name".
type VolumeID string

// Volume is per-instance data on a node. A local one has a single copy, on its home node.
type Volume struct {
	ID    VolumeID   `cbor:"1,keyasint"`
	Group GroupID    `cbor:"2,keyasint"`
	Slot  int        `cbor:"3,keyasint"`
	Name  string     `cbor:"4,keyasint"`
	Kind  VolumeKind `cbor:"5,keyasint"`
	Home  NodeID     `cbor:"6,keyasint"`
}

// NewVolumeID names a volume of a slot.
func NewVolumeID(group GroupID, slot int, name string) VolumeID {
	return VolumeID(fmt.Sprintf("%s/%d/%s", group, slot, name))
}

// VolumeHome returns the node that holds a slot's local volumes, if it ever had any.
func (s *State) VolumeHome(spec *GroupSpec, group GroupID, slot int) (NodeID, bool) {
	for _, v := range spec.Volumes {
		if row, ok := s.Volumes.Get(NewVolumeID(group, slot, v.Name)); ok {
			return row.Home, true
		}
	}
	return "", false
}

// singleHolder reports whether a slot may never have two instances that are not confirmed stopped: they would share a volume or an identity.
func (g *GroupSpec) singleHolder() bool { return len(g.Volumes) > 0 || g.Exclusive }

// claimVolumes makes the node of an instance the home of the volumes that it uses for the first time.
func (s *State) claimVolumes(spec *GroupSpec, inst *Instance) {
	for _, v := range spec.Volumes {
		id := NewVolumeID(inst.Group, inst.Slot, v.Name)
		if !s.Volumes.Has(id) {
			s.Volumes.put(id, &Volume{ID: id, Group: inst.Group, Slot: inst.Slot, Name: v.Name, Kind: v.Kind, Home: inst.Node})
		}
	}
}

// dropVolumes forgets the volumes for which gone is true.
func (s *State) dropVolumes(gone func(*Volume) bool) {
	var ids []VolumeID
	for id, v := range s.Volumes.All() {
		if gone(v) {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		s.Volumes.del(id)
	}
}
