package fsm

import (
	"cmp"
	"maps"
	"strconv"

	"github.com/outspan/outspan/model"
)

// Rows that are not settled have their own indexes, so that a decision visits only those rows. With 100,000 settled
// instances, a decision takes microseconds instead of tens of milliseconds. The drawer of a row updates the index with
// each write. Check compares each index with the rows.

// present is the value of each key in an index that is only a set of keys.
type present struct{}

// mark updates a set after a row was written. The parameters was and is say whether the row's key belonged to the set
// before the write, and whether it belongs to the set now.
func mark[K ~string](set *Table[K, present], key K, was, is bool) {
	switch {
	case is && !was:
		set.put(key, present{})
	case !is && was:
		set.del(key)
	}
}

// departs reports whether the instance is stopping or has an eviction request, and is not terminal.
func (i *Instance) departs() bool {
	return i != nil && !i.Terminal() && (i.Desired != model.DesiredRunning || i.Eviction.Requested)
}

// unsettled reports whether the group's sums differ from its count: an instance is missing, not ready, stopping, or too
// many. A system group is unsettled until its job is stopped or the group is removed, because its sums can't show
// whether each node has its instance.
func (g *Group) unsettled() bool {
	if g == nil {
		return false
	}
	return g.Role == model.RoleSystem && g.Count > 0 || g.Ready != g.Count || g.Running != g.Count || g.Alive != g.Count
}

// free reports whether the instance is ready and its stop is not being prepared.
func (i *Instance) free() bool { return i.isReady() && !i.holdsUnit() }

// putNode writes a node's row, and updates the counts of unheard ready instances.
func (s *State) putNode(n *Node) { s.recountUnheard(s.fleet.putNode(n), n) }

// delNode removes a node's row, and updates the counts of unheard ready instances.
func (s *State) delNode(id model.NodeID) { s.recountUnheard(s.fleet.delNode(id), nil) }

// recountUnheard updates the counts of unheard ready instances after a node's row was replaced. before and after may be
// nil.
func (s *instances) recountUnheard(before, after *Node) {
	was, is := before.unheard(), after.unheard()
	if was == is {
		return
	}
	for inst := range s.InstancesOn(cmp.Or(after, before).ID) {
		if inst.free() {
			s.countUnheard(inst.Group, count(is)-count(was))
		}
	}
}

// ApplyNaming does what Apply does, and also returns the instances whose rows the entry wrote. A removed instance is
// returned with its last row. An instance may be listed more than once.
func (s State) ApplyNaming(index, logTerm uint64, e Entry) (State, []Result, []*Instance) {
	f := s.fork()
	f.entry.names, f.entry.written = true, nil
	results := f.applyNext(index, logTerm, e)
	written := f.entry.written
	return f.publish(), results, written
}

// appendSlot appends a slot's number with leading zeros, in at least eight digits, so that keys sort like the numbers.
func appendSlot(key []byte, slot int) []byte {
	for width := 10_000_000; width > 1 && slot < width; width /= 10 {
		key = append(key, '0')
	}
	return strconv.AppendInt(key, int64(slot), 10)
}

func inGroupKey(i *Instance) string {
	var buffer [128]byte // on the stack: making the key allocates once, and Sprintf would allocate four times
	key := append(append(buffer[:0], i.Group...), '/')
	key = append(appendSlot(key, i.Slot), '/')
	return string(append(key, i.ID...))
}

func slotPrefix(group model.GroupID, slot int) string {
	var buffer [128]byte
	key := append(append(buffer[:0], group...), '/')
	return string(append(appendSlot(key, slot), '/'))
}

// unsettledIndexes checks that the indexes of unsettled rows match the rows exactly.
func (c *checker) unsettledIndexes() {
	s := c.s
	departing, unsettled, open, off, restoring, unheard, leftOut := 0, 0, 0, 0, 0, 0, 0
	for id, i := range s.Instances.All() {
		c.want(s.departing.Has(id) == i.departs(), "instance %s: is it departing? by the index %v, by its row %v", id,
			s.departing.Has(id), i.departs())
		departing += count(i.departs())
		row, _ := s.inGroup.Get(inGroupKey(i))
		c.want(row == i, "instance %s: the index of its group has another row", id)
	}
	vouched := map[model.GroupID]int{}
	for _, i := range s.Instances.All() {
		if n, ok := s.Nodes.Get(i.Node); ok && n.unheard() && i.free() {
			vouched[i.Group]++
		}
	}
	c.want(maps.Equal(vouched, maps.Collect(s.unheardReady.All())),
		"ready instances unheard since a restore: %v by the index, %v by the rows",
		maps.Collect(s.unheardReady.All()), vouched)
	for id, g := range s.Groups.All() {
		c.want(s.unsettled.Has(id) == g.unsettled(), "group %s: is it unsettled? by the index %v, by its row %v", id,
			s.unsettled.Has(id), g.unsettled())
		unsettled += count(g.unsettled())
	}
	for id, d := range s.Deployments.All() {
		c.want(s.openDeployments.Has(id) == !d.Status.Ended(), "deployment %s: is it open? by the index %v, by its row %v",
			id, s.openDeployments.Has(id), !d.Status.Ended())
		open += count(!d.Status.Ended())
	}
	for id, n := range s.Nodes.All() {
		is := n.Intent != model.IntentActive
		c.want(s.outOfService.Has(id) == is, "node %s: is it out of service? by the index %v, by its row %v", id,
			s.outOfService.Has(id), is)
		off += count(is)
		is = n.Restore.pending()
		c.want(s.restoring.Has(id) == is, "node %s: did a restore leave something open? by the index %v, by its row %v",
			id, s.restoring.Has(id), is)
		restoring += count(is)
		is = n.unheard()
		c.want(s.unheard.Has(id) == is,
			"node %s: does it count as online unheard since a restore? by the index %v, by its row %v",
			id, s.unheard.Has(id), is)
		unheard += count(is)
		is = n.Self.Events.Last != nil
		c.want(s.leftOutEvents.Has(leftOutKey(n)) == is,
			"node %s: was an event of it left out? by the index %v, by its row %v", id,
			s.leftOutEvents.Has(leftOutKey(n)), is)
		leftOut += count(is)
	}
	for _, size := range [...]struct {
		name      string
		got, want int
	}{{"departing instances", s.departing.Len(), departing}, {"unsettled groups", s.unsettled.Len(), unsettled},
		{"open deployments", s.openDeployments.Len(), open}, {"nodes out of service", s.outOfService.Len(), off},
		{"nodes with something open after a restore", s.restoring.Len(), restoring},
		{"nodes unheard since a restore", s.unheard.Len(), unheard},
		{"nodes with events left out", s.leftOutEvents.Len(), leftOut}} {
		c.want(size.got == size.want, "the index of %s has %d entries, the rows %d", size.name, size.got, size.want)
	}
}
