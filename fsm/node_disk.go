package fsm

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/outspan/outspan/model"
)

// Values of Event.Before and Event.After in events about disk limits.
const (
	diskWithin = "within_limit"
	diskAbove  = "above_limit"
)

// DiskUse returns how far an instance is above its disk limit. It returns false if the agent has reported no excess, if
// the instance is terminal, or if its node is offline or unknown.
func (s *fleet) DiskUse(inst *Instance) (model.DiskUse, bool) {
	n, ok := s.Nodes.Get(inst.Node)
	if !ok || n.Health == model.HealthOffline || inst.Terminal() {
		return model.DiskUse{}, false
	}
	return diskUse(n.Self.Disk, inst.ID)
}

func diskUse(list []model.DiskUse, id model.InstanceID) (model.DiskUse, bool) {
	i, found := slices.BinarySearchFunc(list, id, func(u model.DiskUse, id model.InstanceID) int {
		return cmp.Compare(u.ID, id)
	})
	if !found {
		return model.DiskUse{}, false
	}
	return list[i], true
}

// keptDisk returns the disk uses to store after a report: those of the report if the agent has measured, otherwise the
// stored ones.
func keptDisk(n *Node, r *model.SelfReport) []model.DiskUse {
	if !r.Measured {
		return n.Self.Disk
	}
	return toldDisk(r)
}

// toldDisk returns those disk uses of a report that the state keeps: valid ones above their limit, each instance once,
// in order of id, at most MaxDiskUses. It returns nil if the agent has not measured.
func toldDisk(r *model.SelfReport) []model.DiskUse {
	if !r.Measured {
		return nil
	}
	kept := slices.DeleteFunc(slices.Clone(r.Disk), func(u model.DiskUse) bool {
		return !model.ValidName(string(u.ID)) || u.LimitBytes <= 0 || u.UsedBytes <= u.LimitBytes
	})
	slices.SortStableFunc(kept, func(a, b model.DiskUse) int { return cmp.Compare(a.ID, b.ID) })
	kept = slices.CompactFunc(kept, func(a, b model.DiskUse) bool { return a.ID == b.ID })
	kept = kept[:min(len(kept), model.MaxDiskUses)]
	for i := range kept {
		kept[i].Dir = model.ClipText(kept[i].Dir, maxAgentText)
	}
	if len(kept) == 0 {
		return nil
	}
	return slices.Clip(kept)
}

// tellDisk emits an event for each instance that went above its disk limit, or back below it. It also wakes the readers
// of instances whose numbers changed.
func (s *State) tellDisk(n *Node, now []model.DiskUse) {
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

func (s *State) tellDiskOf(n *Node, u model.DiskUse, before, after string) {
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
	s.emit(Event{Type: model.EventDisk, Subject: "instance/" + string(u.ID), Before: before, After: after, Data: data})
}

func (s *State) touchDisk(id model.InstanceID) { s.touch("nodes", "instances", Topic("instance/"+id)) }

func soundDisk(list []model.DiskUse) bool {
	sorted := slices.IsSortedFunc(list, func(a, b model.DiskUse) int { return cmp.Or(cmp.Compare(a.ID, b.ID), -1) })
	return sorted && len(list) <= model.MaxDiskUses
}
