package fsm

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

// instances is the drawer of what runs, with its indexes and sums. It only stores rows. setInstance writes a row and
// updates every index. The sums classUse and unheardReady also depend on rows of other drawers, so State updates them,
// through addClassUse and countUnheard.
type instances struct {
	Instances Table[model.InstanceID, *Instance]
	Pulls     Table[string, *Pull] // by slotPrefix

	// by inGroupKey; the values are rows and not ids, because whole groups are read at once
	inGroup   Table[string, *Instance]
	onNode    Table[model.NodeID, *nodeInstances]
	pullsOn   Table[string, *Pull]             // by pullOnNodeKey
	departing Table[model.InstanceID, present] // stopping, or asked to stop

	classUse     Table[model.ClassName, Usage] // sums over the instances that count toward quotas
	unheardReady Table[model.GroupID, int]     // Ledger.Unheard of each group, if it is not 0
}

func (s *instances) fork(undo *undoLog) {
	s.Instances, s.inGroup, s.onNode = s.Instances.fork(undo), s.inGroup.fork(undo), s.onNode.fork(undo)
	s.Pulls, s.pullsOn = s.Pulls.fork(undo), s.pullsOn.fork(undo)
	s.departing, s.classUse, s.unheardReady = s.departing.fork(undo), s.classUse.fork(undo), s.unheardReady.fork(undo)
}

// setInstance replaces one row by another and updates the indexes. before is nil for a new instance, after is nil for a
// removed one.
func (s *instances) setInstance(before, after *Instance) {
	if after != nil {
		s.Instances.put(after.ID, after)
	} else {
		s.Instances.del(before.ID)
	}
	s.indexInstance(before, after)
	s.indexOnNode(cmp.Or(after, before), before, after)
}

func (s *instances) indexInstance(before, after *Instance) {
	if after != nil {
		s.inGroup.put(inGroupKey(after), after)
	} else {
		s.inGroup.del(inGroupKey(before))
	}
	mark(&s.departing, cmp.Or(after, before).ID, before.departs(), after.departs())
}

// addClassUse adds n instances, each of which takes r, to the usage of a class. n may be negative.
func (s *instances) addClassUse(name model.ClassName, r model.Resources, n int) {
	setSum(&s.classUse, name, s.ClassUsage(name).plus(r, n))
}

// countUnheard adds n to the number of a group's instances that count as ready only because a restored state says so. n
// may be negative.
func (s *instances) countUnheard(group model.GroupID, n int) {
	if n == 0 {
		return
	}
	was, _ := s.unheardReady.Get(group)
	setSum(&s.unheardReady, group, was+n)
}

// setSum stores a sum, or removes the row if the sum is zero. The sums of a state that is read from a snapshot have no
// zero rows either.
func setSum[K ~string, V comparable](sums *Table[K, V], key K, sum V) {
	var zero V
	if sum == zero {
		sums.del(key)
	} else {
		sums.put(key, sum)
	}
}

// index builds the indexes after the rows were read from a snapshot. It collects all instances of a node before it
// writes the node's row in onNode. It refuses a snapshot in which two instances have the same port.
func (s *instances) index() error {
	for _, c := range s.Pulls.All() {
		s.indexPull(nil, c)
	}
	onNode := map[model.NodeID]*nodeInstances{}
	for _, i := range s.Instances.All() {
		s.indexInstance(nil, i)
		if onNode[i.Node] == nil {
			onNode[i.Node] = new(nodeInstances)
		}
		if err := onNode[i.Node].load(i, i.takesRoom()); err != nil {
			return err
		}
	}
	for _, i := range s.Instances.All() { // waiting preemptors last: a victim's port is not theirs yet
		if i.WaitsForRoom() {
			if err := onNode[i.Node].load(i, true); err != nil {
				return err
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(onNode)) {
		s.putOnNode(id, onNode[id])
	}
	return nil
}

// InstancesOf iterates over the instances of a group, terminal ones included, in order of slot and id.
func (s *instances) InstancesOf(group model.GroupID) iter.Seq[*Instance] {
	return s.groupRows(string(group) + "/")
}

// InstancesInSlot iterates over the instances of one slot, terminal ones included, in order of id.
func (s *instances) InstancesInSlot(group model.GroupID, slot int) iter.Seq[*Instance] {
	return s.groupRows(slotPrefix(group, slot))
}

func (s *instances) groupRows(prefix string) iter.Seq[*Instance] {
	return func(yield func(*Instance) bool) {
		for key, inst := range s.inGroup.From(prefix) {
			if !strings.HasPrefix(key, prefix) || !yield(inst) {
				return
			}
		}
	}
}

// InstancesFrom iterates like InstancesOf, but continues with the instances of later groups. It saves the time to
// compare the key of each row, for a caller that stops at the end of the group itself.
func (s *instances) InstancesFrom(group model.GroupID) iter.Seq[*Instance] {
	return func(yield func(*Instance) bool) {
		for _, inst := range s.inGroup.From(string(group) + "/") {
			if !yield(inst) {
				return
			}
		}
	}
}

// InstancesOn iterates over the instances of a node, terminal ones included, in order of id.
func (s *instances) InstancesOn(node model.NodeID) iter.Seq[*Instance] {
	return func(yield func(*Instance) bool) {
		n, ok := s.onNode.Get(node)
		if !ok {
			return
		}
		for _, id := range n.ids {
			if inst, ok := s.Instances.Get(id); ok && !yield(inst) {
				return
			}
		}
	}
}

// PortOwner returns the instance that owns a port on a node, or the claim (Pull.Owner) that will. It returns false if
// the port is free.
func (s *instances) PortOwner(node model.NodeID, port int) (model.InstanceID, bool) {
	if n, ok := s.onNode.Get(node); ok {
		if owner, taken := n.ownerOf(port); taken {
			return owner, true
		}
	}
	return s.pullOwner(node, port)
}

// Departing iterates in order of id over the instances that are stopping or asked to stop, but are not terminal.
func (s *instances) Departing() iter.Seq[*Instance] {
	return func(yield func(*Instance) bool) {
		for id := range s.departing.All() {
			if inst, ok := s.Instances.Get(id); ok && !yield(inst) {
				return
			}
		}
	}
}
