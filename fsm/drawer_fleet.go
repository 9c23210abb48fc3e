package fsm

import (
	"cmp"
	"iter"

	"github.com/outspan/outspan/model"
)

// fleet is the drawer of machines: the nodes with their indexes, and the drains. It only stores rows. Only putNode,
// delNode, putDrain and delDrain write its tables.
type fleet struct {
	Nodes  Table[model.NodeID, *Node]
	Drains Table[model.DrainID, *Drain]

	nodeNames     Table[string, model.NodeID]
	outOfService  Table[model.NodeID, present] // nodes that are cordoned, draining or disabled
	restoring     Table[model.NodeID, present] // nodes for which NodeRestore.pending is true
	unheard       Table[model.NodeID, present] // nodes for which Node.unheard is true
	leftOutEvents Table[string, present]       // by leftOutKey; nodes with left-out events (see SelfEvents)
}

func (s *fleet) fork(undo *undoLog) {
	s.Nodes, s.Drains = s.Nodes.fork(undo), s.Drains.fork(undo)
	s.nodeNames, s.outOfService = s.nodeNames.fork(undo), s.outOfService.fork(undo)
	s.restoring, s.unheard, s.leftOutEvents = s.restoring.fork(undo), s.unheard.fork(undo), s.leftOutEvents.fork(undo)
}

// putNode writes a node's row, updates the indexes of nodes, and returns the row that it replaced, or nil.
func (s *fleet) putNode(n *Node) (before *Node) {
	before, _ = s.Nodes.put(n.ID, n)
	s.indexNode(before, n)
	return before
}

// delNode removes a node's row and returns it.
func (s *fleet) delNode(id model.NodeID) (before *Node) {
	before, _ = s.Nodes.del(id)
	s.indexNode(before, nil)
	return before
}

// indexNode updates the indexes of nodes after a row was replaced. before and after may be nil.
func (s *fleet) indexNode(before, after *Node) {
	row := cmp.Or(after, before)
	if row == nil {
		return
	}
	if before == nil || after == nil || before.Name != after.Name {
		if before != nil {
			s.nodeNames.del(before.Name)
		}
		if after != nil {
			s.nodeNames.put(after.Name, after.ID)
		}
	}
	mark(&s.outOfService, row.ID, before.outOfService(), after.outOfService())
	mark(&s.restoring, row.ID, before.restoring(), after.restoring())
	mark(&s.unheard, row.ID, before.unheard(), after.unheard())
	if before.hasLeftOutEvents() {
		s.leftOutEvents.del(leftOutKey(before))
	}
	if after.hasLeftOutEvents() {
		s.leftOutEvents.put(leftOutKey(after), present{})
	}
}

func (s *fleet) putDrain(d *Drain) { s.Drains.put(d.ID, d) }

func (s *fleet) delDrain(id model.DrainID) { s.Drains.del(id) }

// index builds the indexes after the rows were read from a snapshot. It refuses two nodes with the same name.
func (s *fleet) index() error {
	for id, n := range s.Nodes.All() {
		if owner, taken := s.nodeNames.Get(n.Name); taken {
			return damaged("nodes %s and %s have the same name %s", owner, id, n.Name)
		}
		s.indexNode(nil, n)
	}
	return nil
}

func (n *Node) outOfService() bool { return n != nil && n.Intent != model.IntentActive }

func (n *Node) hasLeftOutEvents() bool { return n != nil && n.Self.Events.Last != nil }

func (n *Node) restoring() bool { return n != nil && n.Restore.pending() }

// OutOfService iterates over the nodes that are cordoned, draining or disabled, in order of id.
func (s *fleet) OutOfService() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for id := range s.outOfService.All() {
			if n, ok := s.Nodes.Get(id); ok && !yield(n) {
				return
			}
		}
	}
}

// NodeOf returns the node with exactly this name.
func (s *fleet) NodeOf(name string) (n *Node, ok bool) {
	id, ok := s.nodeNames.Get(name)
	if !ok {
		return nil, false
	}
	return s.Nodes.Get(id)
}

// InService reports whether the node is neither cordoned, draining nor disabled.
func (s *fleet) InService(id model.NodeID) bool {
	return !s.outOfService.Has(id)
}

// forgetDrains removes the oldest ended drain if the table has more than keptDrains drains, ended or not.
func (s *fleet) forgetDrains() {
	if s.Drains.Len() <= keptDrains {
		return
	}
	var oldest *Drain
	for _, d := range s.Drains.All() {
		if d.Phase() != model.PhaseDraining && (oldest == nil || d.Index < oldest.Index) {
			oldest = d
		}
	}
	if oldest != nil {
		s.delDrain(oldest.ID)
	}
}
