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
// updates every index. The sums classUse and unheardReady also depend on rows of jobs and nodes, so each has its own
// writer.
type instances struct {
	Instances Table[model.InstanceID, *Instance]

	// by group/slot/instance; it holds the rows themselves, because whole groups are read at once
	inGroup   Table[string, *Instance]
	onNode    Table[model.NodeID, *nodeInstances]
	departing Table[model.InstanceID, present] // stopping, or asked to stop

	classUse     Table[model.ClassName, Usage] // of the instances that count toward quotas
	unheardReady Table[model.GroupID, int]     // Ledger.Unheard of each group, if it is not 0
}

func (s *instances) fork(undo *undoLog) {
	s.Instances, s.inGroup, s.onNode = s.Instances.fork(undo), s.inGroup.fork(undo), s.onNode.fork(undo)
	s.departing, s.classUse, s.unheardReady = s.departing.fork(undo), s.classUse.fork(undo), s.unheardReady.fork(undo)
}

// setInstance replaces the row before by after, and updates every index of instances. One of the rows may be nil.
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
	mark(s.departing, cmp.Or(after, before).ID, before.departs(), after.departs())
}

// addClassUse adds n instances, each of which takes r, to the usage of a class.
func (s *instances) addClassUse(name model.ClassName, r model.Resources, n int) {
	setSum(s.classUse, name, s.ClassUsage(name).plus(r, n))
}

// countUnheard adds n to the number of a group's instances that count as ready only because a restored state says so.
func (s *instances) countUnheard(group model.GroupID, n int) {
	if n == 0 {
		return
	}
	was, _ := s.unheardReady.Get(group)
	setSum(s.unheardReady, group, was+n)
}

// setSum stores a sum. A sum of zero has no row, so that a restored state has the same rows.
func setSum[K ~string, V comparable](sums Table[K, V], key K, sum V) {
	var zero V
	if sum == zero {
		sums.del(key)
	} else {
		sums.put(key, sum)
	}
}

// index builds the indexes after the rows were read from a snapshot. It collects everything on a node before it writes
// the node's row. It refuses a snapshot in which two instances hold the same port.
func (s *instances) index() error {
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
	for _, i := range s.Instances.All() { // an instance that waits for room owns those of its ports that no victim holds
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

// InstancesOf iterates over all instances of a group that have a row, even terminal ones, in order of slot and id.
func (s *instances) InstancesOf(group model.GroupID) iter.Seq[*Instance] {
	return s.groupRows(string(group) + "/")
}

// InstancesInSlot iterates over the instances of one slot.
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

// InstancesFrom iterates like InstancesOf, but does not stop at the end of the group: the instances of later groups
// follow. So it need not compare the key of each row, which saves time if the caller notices the end itself.
func (s *instances) InstancesFrom(group model.GroupID) iter.Seq[*Instance] {
	return func(yield func(*Instance) bool) {
		for _, inst := range s.inGroup.From(string(group) + "/") {
			if !yield(inst) {
				return
			}
		}
	}
}

// InstancesOn iterates over all instances of a node that have a row, even terminal ones, in order of id.
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

// PortOwner returns the instance that holds a port of a node, or false if no instance does.
func (s *instances) PortOwner(node model.NodeID, port int) (model.InstanceID, bool) {
	n, ok := s.onNode.Get(node)
	if !ok {
		return "", false
	}
	return n.ownerOf(port)
}

// Departing iterates over the instances that are stopping or asked to stop, and are not confirmed stopped, in order of
// id.
func (s *instances) Departing() iter.Seq[*Instance] {
	return func(yield func(*Instance) bool) {
		for id := range s.departing.All() {
			if inst, ok := s.Instances.Get(id); ok && !yield(inst) {
				return
			}
		}
	}
}
