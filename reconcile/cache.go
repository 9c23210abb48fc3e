package reconcile

import (
	"maps"
	"reflect"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Cache carries results from one decision to the next, as long as the rows that they were computed from are the same. A
// row is never edited, only replaced. So the same pointer means the same row. A Cache makes decisions faster and
// changes no plan. With it the rescheduler looks only at groups that have changed. To look at all 100,000 instances on
// 5,000 nodes took tens of milliseconds. The zero value is empty and ready to use. A Cache is not safe for concurrent
// use.
type Cache struct {
	nodes     []seenNode
	groups    map[model.GroupID]seenGroup
	places    *nodeIndex
	instances map[model.GroupID]*instanceList
	// rows of system groups whose wanted instances all have the group's version; a new instance changes its group's row
	uniform map[model.GroupID]*fsm.Group
	looks   uint64          // number of decisions so far
	viewed  []model.GroupID // groups that the last decision viewed

	followed bool   // the caller passes every write between decisions to note
	follows  uint64 // how often follow was called
}

// refreshed is the number of decisions after which the instance list of an unchanged group is read again. Otherwise the
// list would keep replaced rows in memory.
const refreshed = 64

// follow(true) begins a time in which the caller passes every write between decisions to note, and follow(false) ends
// it. In that time instance lists needn't be read again. A rehearsal does this: a drain's forecast for ten groups of
// 10,000 instances then takes half the time.
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

// note records that instances were written. Any row of an instance will do. It does nothing if follow(true) is not in
// effect.
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
// previous decision used and this one didn't, and all data of groups that are gone. While writes are followed, it keeps
// the lists.
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

// seenNode holds what the rescheduler's cached hints depend on in a node.
type seenNode struct {
	id                 model.NodeID
	name               string
	eligible           bool
	labels, attributes map[string]string
}

// seenGroup is the hint of a group at rest: an upper bound of what a move could gain in preferences. It is valid while
// the group has this row. The row changes whenever an instance of the group moves to another node, and whenever the
// group's policy changes.
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

// look compares the nodes with those of the last call. If one differs, it drops all cached hints.
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
