package fsm

import (
	"cmp"
	"slices"
)

const (
	avoidLimit = 64   // entries on one node (R39)
	avoidFor   = Hour // how long a group avoids a node
)

// AvoidEntry says that instances of a group did badly on the node that it stands on. It is a preference of placement: the node comes after all others
// that will do, whatever else speaks for it (R37, R40).
type AvoidEntry struct {
	Group  GroupID `cbor:"1,keyasint"`
	Until  Time    `cbor:"2,keyasint"` // from then on it is ignored, and the next entry that is added here removes it
	Reason string  `cbor:"3,keyasint,omitempty"`
}

// Avoids returns why a group avoids the node at cluster time now.
func (n *Node) Avoids(group GroupID, now Time) (AvoidEntry, bool) {
	for _, a := range n.Avoid {
		if a.Group == group && now < a.Until {
			return a, true
		}
	}
	return AvoidEntry{}, false
}

// Avoiding lists what is not over yet at cluster time now, in order of group.
func (n *Node) Avoiding(now Time) []AvoidEntry {
	var live []AvoidEntry
	for _, a := range n.Avoid {
		if now < a.Until {
			live = append(live, a)
		}
	}
	return live
}

// avoid puts the instance's group on the list of its node, or renews it there. When the list is full the entry that is over first makes room. A group
// that has one instance on each node has nowhere else to go, so it avoids nothing.
func (s *State) avoid(inst *Instance, reason string) {
	node, ok := s.Nodes.Get(inst.Node)
	group, known := s.Groups.Get(inst.Group)
	if !ok || !known || group.Role == RoleSystem {
		return
	}
	list := slices.DeleteFunc(slices.Clone(node.Avoid), func(a AvoidEntry) bool { return a.Until <= s.Now || a.Group == inst.Group })
	if len(list) >= avoidLimit {
		first := 0
		for i := range list {
			if list[i].Until < list[first].Until {
				first = i
			}
		}
		list = slices.Delete(list, first, first+1)
	}
	list = append(list, AvoidEntry{Group: inst.Group, Until: s.Now.Add(avoidFor), Reason: clipReason(reason)})
	slices.SortFunc(list, func(a, b AvoidEntry) int { return cmp.Compare(a.Group, b.Group) })
	next := *node
	next.Avoid = list
	s.Nodes.put(next.ID, &next)
	s.touch("nodes", Topic("node/"+next.ID))
}

// clipReason bounds what a list of 64 entries may hold.
func clipReason(reason string) string {
	const longest = 128
	for i := range reason {
		if i > longest {
			return reason[:i]
		}
	}
	return reason
}

// servesBadly reports whether a failure for this reason speaks against the node and not only against a machine that was restarted or cut off.
func servesBadly(reason string) bool {
	return reason != "gone_from_node" && reason != string(CauseFenced)
}
