package reconcile

import (
	"maps"
	"reflect"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Cache carries results from one decision to the next, as long as the rows that they were computed from are the same. A
// row is never edited, only replaced, so an equal pointer means the same row. A Cache makes decisions faster and
// changes no plan. The zero value is empty and ready to use. A Cache is not safe for concurrent use.
type Cache struct {
	nodes     []seenNode
	groups    map[model.GroupID]seenGroup
	places    *nodeIndex
	instances map[model.GroupID]*instanceList
	// rows of system groups whose wanted instances all have the group's version; a new instance replaces its group's row
	uniform map[model.GroupID]*fsm.Group
	looks   uint64          // number of decisions so far
	viewed  []model.GroupID // groups that were viewed in the last decision

	followed bool   // the caller passes every write between decisions to note
	follows  uint64 // how often follow was called
}

// refreshed is how often the rescheduler reads the instance list of an unchanged group again: once in this many
// decisions. Otherwise the list would keep replaced rows in memory.
const refreshed = 64

// follow(true) begins a time in which the caller passes every write between decisions to note, and follow(false) ends
// that time. Meanwhile instance lists are usually patched instead of read again. For a rehearsal of ten groups of
// 10,000 instances, patching halves the time.
func (s *Cache) follow(on bool) {
	s.followed = on
	s.follows++
}

func (s *Cache) isUniform(g *fsm.Group) {
	if s.uniform == nil {
		s.uniform = map[model.GroupID]*fsm.Group{}
	}
	s.uniform[g.ID] = g
}

// note records that instances were written. Any row of a written instance will do, because only its group, slot and id
// are used. note does nothing unless follow(true) is in effect.
func (s *Cache) note(written []*fsm.Instance) {
	if !s.followed {
		return
	}
	for _, inst := range written {
		if r := s.instances[inst.Group]; r != nil && r.follow == s.follows {
			r.written = append(r.written, inst)
		}
	}
}

// end is called at the end of a decision. It drops what the next decision is unlikely to need: instance lists that the
// previous decision used and this one did not, and all data of groups that no longer exist. While follow(true) is in
// effect, it keeps the lists of existing groups.
func (s *Cache) end(groups []*groupView, state *fsm.State) {
	for _, id := range s.viewed {
		if r := s.instances[id]; r != nil && r.look != s.looks && !s.followed {
			delete(s.instances, id)
		}
	}
	s.viewed = s.viewed[:0]
	for _, g := range groups {
		s.viewed = append(s.viewed, g.id)
	}
	if len(s.instances) > state.Groups.Len() {
		maps.DeleteFunc(s.instances, func(id model.GroupID, _ *instanceList) bool { return !state.Groups.Has(id) })
	}
	if len(s.groups) > state.Groups.Len() {
		maps.DeleteFunc(s.groups, func(id model.GroupID, _ seenGroup) bool { return !state.Groups.Has(id) })
	}
	if len(s.uniform) > state.Groups.Len() {
		maps.DeleteFunc(s.uniform, func(id model.GroupID, _ *fsm.Group) bool { return !state.Groups.Has(id) })
	}
	s.looks++
}

// seenNode contains the parts of a node on which the rescheduler's cached hints depend.
type seenNode struct {
	id                 model.NodeID
	name               string
	eligible           bool
	labels, attributes map[string]string
}

// seenGroup is the rescheduler's hint for a group: an upper bound of what a move could gain in preferences. The hint is
// valid while the group has this row. The row is replaced whenever an instance of the group moves to another node, and
// whenever the group's policy changes.
type seenGroup struct {
	row  *fsm.Group
	hint int64
}

func (n *seenNode) same(o *seenNode) bool {
	return n.eligible == o.eligible && n.id == o.id && n.name == o.name && sameMap(n.labels, o.labels) &&
		sameMap(n.attributes, o.attributes)
}

// sameMap reports whether two maps are the same object.
func sameMap(a, b map[string]string) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// look compares the nodes with those of the last call. If any node differs, it drops all cached hints.
func (s *Cache) look(loads []load) {
	same := len(s.nodes) == len(loads) && s.groups != nil
	if !same {
		s.nodes = make([]seenNode, len(loads))
	}
	for i := range loads {
		n := loads[i].view.node
		now := seenNode{id: n.ID, name: n.Name, eligible: loads[i].eligible, labels: n.Shape.Labels,
			attributes: n.Shape.Attributes}
		if same = same && s.nodes[i].same(&now); !same {
			s.nodes[i] = now
		}
	}
	if !same {
		s.groups = map[model.GroupID]seenGroup{}
	}
}
