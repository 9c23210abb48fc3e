package fsm

import "github.com/outspan/outspan/model"

// instances is the drawer of what runs, with its indexes and sums. It only stores rows. setInstance writes a row with
// every index of it; the two sums, which need a node's or a job's row too, have a writer each.
type instances struct {
	Instances Table[model.InstanceID, *Instance]

	inGroup    Table[string, *Instance] // group/slot/instance; the rows themselves, for whole groups are read in one go
	households Table[model.NodeID, *household]
	departing  Table[model.InstanceID, present] // on their way out, or wished to go

	classUse     Table[model.ClassName, Usage] // of the instances that count toward quotas
	unheardReady Table[model.GroupID, int]     // see Ledger.Unheard; no row: 0
}

func (s *instances) fork(undo *undoLog) {
	s.Instances, s.inGroup, s.households = s.Instances.fork(undo), s.inGroup.fork(undo), s.households.fork(undo)
	s.departing, s.classUse, s.unheardReady = s.departing.fork(undo), s.classUse.fork(undo), s.unheardReady.fork(undo)
}
