package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// MaxDiskUses bounds how many instances above their disk limit are known of one node.
const MaxDiskUses = 64

// The two sides of a disk limit, in events.
const (
	diskWithin = "within_limit"
	diskAbove  = "above_limit"
)

// DiskUse is an instance whose work directory is larger than its job file allows.
type DiskUse struct {
	ID         InstanceID `cbor:"1,keyasint"`
	UsedBytes  int64      `cbor:"2,keyasint"`
	LimitBytes int64      `cbor:"3,keyasint"`
	AtLeast    bool       `cbor:"4,keyasint,omitempty"` // the agent could not measure all of it
	Dir        string     `cbor:"5,keyasint,omitempty"` // on the node; at most 256 bytes
}

// Words says how much it uses and what its limit is.
func (u DiskUse) Words() string {
	about := ""
	if u.AtLeast {
		about = "at least "
	}
	return fmt.Sprintf("its work directory has %s%s, its limit is %s", about, SizeText(u.UsedBytes), SizeText(u.LimitBytes))
}

// SizeText is a number of bytes as job files write it: whole units, rounded down.
func SizeText(n int64) string {
	units := [...]string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for n >= 1024 && i < len(units)-1 && (n%1024 == 0 || n >= 10*1024) {
		n, i = n/1024, i+1
	}
	return strconv.FormatInt(n, 10) + units[i]
}

// DiskUse returns how far an instance is above its disk limit. It is false if it is not, as far as its agent told, and
// for an instance that has ended or whose node is offline.
func (s *State) DiskUse(inst *Instance) (DiskUse, bool) {
	n, ok := s.Nodes.Get(inst.Node)
	if !ok || n.Health == HealthOffline || inst.Terminal() {
		return DiskUse{}, false
	}
	return diskUse(n.Self.Disk, inst.ID)
}

func diskUse(list []DiskUse, id InstanceID) (DiskUse, bool) {
	i, found := slices.BinarySearchFunc(list, id, func(u DiskUse, id InstanceID) int { return cmp.Compare(u.ID, id) })
	if !found {
		return DiskUse{}, false
	}
	return list[i], true
}

// keptDisk is what of the report is kept: each instance once, in order of id.
func keptDisk(n *Node, r *SelfReport) []DiskUse {
	if !r.Measured {
		return n.Self.Disk
	}
	kept := slices.DeleteFunc(slices.Clone(r.Disk), func(u DiskUse) bool {
		return !ValidName(string(u.ID)) || u.LimitBytes <= 0 || u.UsedBytes <= u.LimitBytes
	})
	slices.SortStableFunc(kept, func(a, b DiskUse) int { return cmp.Compare(a.ID, b.ID) })
	kept = slices.CompactFunc(kept, func(a, b DiskUse) bool { return a.ID == b.ID })
	kept = kept[:min(len(kept), MaxDiskUses)]
	for i := range kept {
		kept[i].Dir = clipText(kept[i].Dir, maxAgentText)
	}
	if len(kept) == 0 {
		return nil
	}
	return slices.Clip(kept)
}

// tellDisk says in an event of each instance that it went above its disk limit, or below it again. Instances whose
// numbers moved are touched.
func (s *State) tellDisk(n *Node, now []DiskUse) {
	for _, u := range now {
		before, above := diskUse(n.Self.Disk, u.ID)
		switch {
		case !above:
			s.tellDiskOf(n, u, diskWithin, diskAbove)
		case before != u:
			s.touchDisk(u.ID)
		}
	}
	for _, u := range n.Self.Disk {
		if _, above := diskUse(now, u.ID); !above {
			s.tellDiskOf(n, u, diskAbove, diskWithin)
		}
	}
}

func (s *State) tellDiskOf(n *Node, u DiskUse, before, after string) {
	inst, ok := s.Instances.Get(u.ID)
	if !ok || inst.Node != n.ID || inst.Terminal() {
		return
	}
	s.touchDisk(u.ID)
	data := map[string]string{
		"node": string(n.ID), "group": string(inst.Group), "limit_bytes": strconv.FormatInt(u.LimitBytes, 10),
	}
	if after == diskAbove {
		data["used_bytes"] = strconv.FormatInt(u.UsedBytes, 10)
	}
	s.emit(Event{Type: EventDisk, Subject: "instance/" + string(u.ID), Before: before, After: after, Data: data})
}

func (s *State) touchDisk(id InstanceID) { s.touch("nodes", "instances", Topic("instance/"+id)) }

func soundDisk(list []DiskUse) bool {
	sorted := slices.IsSortedFunc(list, func(a, b DiskUse) int { return cmp.Or(cmp.Compare(a.ID, b.ID), -1) })
	return sorted && len(list) <= MaxDiskUses
}
