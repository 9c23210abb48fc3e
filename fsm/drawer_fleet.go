package fsm

import "github.com/outspan/outspan/model"

// fleet is the drawer of the machines: nodes and the drains of nodes, with the indexes of both. It only stores rows.
// putNode and putDrain, and their del, are its only writers.
type fleet struct {
	Nodes  Table[model.NodeID, *Node]
	Drains Table[model.DrainID, *Drain]

	nodeNames Table[string, model.NodeID]
	offDuty   Table[model.NodeID, present] // cordoned, draining or disabled
	restoring Table[model.NodeID, present] // on which a restore left something open
	unheard   Table[model.NodeID, present] // see Node.unheard
}

func (s *fleet) fork(undo *undoLog) {
	s.Nodes, s.Drains = s.Nodes.fork(undo), s.Drains.fork(undo)
	s.nodeNames, s.offDuty = s.nodeNames.fork(undo), s.offDuty.fork(undo)
	s.restoring, s.unheard = s.restoring.fork(undo), s.unheard.fork(undo)
}
