package reconcile

import (
	"maps"
	"reflect"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Seen keeps, from one decision to the next, what was worked out of rows that are still the same. Rows are replaced and
// never edited, so the same pointer is the same row, and what rests on it alone needn't be worked out again. It changes
// no answer, only what it costs: with 5,000 nodes and 100,000 instances at rest the rescheduler's look at every
// instance, tens of milliseconds, becomes a look at the groups that changed. It belongs to one goroutine; the zero
// value knows nothing.
type Seen struct {
	nodes   []seenNode
	groups  map[model.GroupID]seenGroup
	places  *places
	rosters map[model.GroupID]*roster
	// rows of system groups all of whose instances are of one version: any other instance brings another row
	uniform map[model.GroupID]*fsm.Group
	looks   uint64          // decisions so far
	viewed  []model.GroupID // by the last one

	followed bool   // note is told of everything that is written between decisions
	follows  uint64 // how often that began or ended
}

// refreshed is the number of decisions without a change after which the roster of a group at rest is read again, so
// that rows which have been replaced since are not kept alive for long.
const refreshed = 64

// follow begins or ends a time in which whoever decides also tells note of everything that is written in between, as a
// rehearsal can. Rosters need not be read again then: the forecast of a drain, with what was seen by the one before it,
// takes half the time where the instances are in ten groups of 10,000.
func (s *Seen) follow(on bool) {
	s.followed = on
	s.follows++
}

func (s *Seen) isUniform(g *fsm.Group) {
	if s.uniform == nil {
		s.uniform = map[model.GroupID]*fsm.Group{}
	}
	s.uniform[g.ID] = g
}

// note is told of rows that were written: any row of each instance.
func (s *Seen) note(written []*fsm.Instance) {
	if !s.followed {
		return
	}
	for _, inst := range written {
		if r := s.rosters[inst.Group]; r != nil && r.follow == s.follows {
			r.written = append(r.written, inst)
		}
	}
}

// end forgets what the decision that ends has no use for: the rosters of groups that it didn't read while the one
// before it did, and whatever is of groups that are gone.
func (s *Seen) end(groups []*groupView, state *fsm.State) {
	for _, id := range s.viewed {
		if r := s.rosters[id]; r != nil && r.look != s.looks && !s.followed {
			delete(s.rosters, id)
		}
	}
	s.viewed = s.viewed[:0]
	for _, g := range groups {
		s.viewed = append(s.viewed, g.id)
	}
	if len(s.rosters) > state.Groups.Len() {
		maps.DeleteFunc(s.rosters, func(id model.GroupID, _ *roster) bool { return !state.Groups.Has(id) })
	}
	if len(s.groups) > state.Groups.Len() {
		maps.DeleteFunc(s.groups, func(id model.GroupID, _ seenGroup) bool { return !state.Groups.Has(id) })
	}
	if len(s.uniform) > state.Groups.Len() {
		maps.DeleteFunc(s.uniform, func(id model.GroupID, _ *fsm.Group) bool { return !state.Groups.Has(id) })
	}
	s.looks++
}

// seenNode is what a group's hint rests on of a node: whether it may be moved to, and its attributes.
type seenNode struct {
	id                 model.NodeID
	name               string
	eligible           bool
	labels, attributes map[string]string
}

// seenGroup is a group at rest: where its instances are changes only with its row.
type seenGroup struct {
	row  *fsm.Group
	spec *model.GroupSpec
	hint int64
}

func (n *seenNode) same(o *seenNode) bool {
	return n.eligible == o.eligible && n.id == o.id && n.name == o.name && sameMap(n.labels, o.labels) &&
		sameMap(n.attributes, o.attributes)
}

// sameMap reports whether two maps are the very same one.
func sameMap(a, b map[string]string) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// look compares the nodes with those of the last look. If one is not the same nothing that was seen of groups holds any
// more.
func (s *Seen) look(loads []load) {
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
