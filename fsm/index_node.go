package fsm

import (
	"cmp"
	"iter"
	"slices"
)

// What is on a node and who owns its ports are few in each: they are lists in one row of a table of nodes. Placing thousands of instances then touches few
// rows of it, where a row for each instance would be as many, all over the table; and it takes a third of the memory.

// portOwner is the instance that holds a port of a node.
type portOwner struct {
	port  int
	owner InstanceID
}

func (s *State) addToNode(i *Instance) {
	on, _ := s.onNode.Get(i.Node)
	if at, there := slices.BinarySearch(on, i.ID); !there {
		s.onNode.put(i.Node, slices.Concat(on[:at], []InstanceID{i.ID}, on[at:]))
	}
}

func (s *State) dropFromNode(i *Instance) {
	on, _ := s.onNode.Get(i.Node)
	at, there := slices.BinarySearch(on, i.ID)
	switch {
	case there && len(on) == 1:
		s.onNode.del(i.Node)
	case there:
		s.onNode.put(i.Node, slices.Concat(on[:at], on[at+1:]))
	}
}

// InstancesOn iterates over every instance of a node that the state still has a row of, in order of id.
func (s *State) InstancesOn(node NodeID) iter.Seq[*Instance] {
	return func(yield func(*Instance) bool) {
		on, _ := s.onNode.Get(node)
		for _, id := range on {
			if inst, ok := s.Instances.Get(id); ok && !yield(inst) {
				return
			}
		}
	}
}

// InstancesFrom iterates like InstancesOf, and goes on with the instances of other groups: it is for who knows most of the rows, and needn't have the end of the group
// looked for at each.
func (s *State) InstancesFrom(group GroupID) iter.Seq[*Instance] {
	return func(yield func(*Instance) bool) {
		for _, inst := range s.inGroup.From(string(group) + "/") {
			if !yield(inst) {
				return
			}
		}
	}
}

// PortOwner returns the instance that holds a port of a node.
func (s *State) PortOwner(node NodeID, port int) (InstanceID, bool) {
	owners, _ := s.portOwners.Get(node)
	at, taken := findPort(owners, port)
	if !taken {
		return "", false
	}
	return owners[at].owner, true
}

func findPort(owners []portOwner, port int) (int, bool) {
	return slices.BinarySearchFunc(owners, port, func(o portOwner, port int) int { return cmp.Compare(o.port, port) })
}

// ownPort makes an instance the owner of a port that has none.
func (s *State) ownPort(node NodeID, port int, owner InstanceID) {
	owners, _ := s.portOwners.Get(node)
	at, _ := findPort(owners, port)
	s.portOwners.put(node, slices.Concat(owners[:at], []portOwner{{port, owner}}, owners[at:]))
}

// freePort makes a port one without an owner.
func (s *State) freePort(node NodeID, port int) {
	owners, _ := s.portOwners.Get(node)
	at, taken := findPort(owners, port)
	switch {
	case taken && len(owners) == 1:
		s.portOwners.del(node)
	case taken:
		s.portOwners.put(node, slices.Concat(owners[:at], owners[at+1:]))
	}
}

// nodeIndexes holds that the lists of each node are in order and have exactly what the rows say.
func (c *checker) nodeIndexes() {
	on, owners := 0, 0
	for id, list := range c.s.onNode.All() {
		c.want(len(list) > 0 && slices.IsSortedFunc(list, func(a, b InstanceID) int { return cmp.Or(cmp.Compare(a, b), -1) }),
			"the list of instances of node %s is empty, or out of order: %v", id, list)
		on += len(list)
	}
	for id, list := range c.s.portOwners.All() {
		c.want(len(list) > 0 && slices.IsSortedFunc(list, func(a, b portOwner) int { return cmp.Or(cmp.Compare(a.port, b.port), -1) }),
			"the list of ports of node %s is empty, or out of order: %v", id, list)
		owners += len(list)
	}
	for id, i := range c.s.Instances.All() {
		list, _ := c.s.onNode.Get(i.Node)
		_, there := slices.BinarySearch(list, id)
		c.want(there, "instance %s is missing in an index", id)
	}
	c.want(on == c.s.Instances.Len(), "the index of instances of nodes has %d entries, the rows %d", on, c.s.Instances.Len())
	c.want(owners == c.ports, "the index of owners of ports has %d entries, the rows %d", owners, c.ports)
}
