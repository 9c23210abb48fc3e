package fsm

import (
	"cmp"
	"slices"

	"github.com/outspan/outspan/model"
)

// This index has one row for each node, because a node has few instances and few ports in use. Placing thousands of
// instances then writes few rows. With a row for each instance, it would write thousands of rows in different places.

// nodeInstances lists what is on a node: its instances in order of id, and the ports that they own in order of number.
type nodeInstances struct {
	ids   []model.InstanceID
	ports []ownedPort
}

// ownedPort is a port and the position of its owner in nodeInstances.ids.
type ownedPort struct{ number, owner int32 }

// copyOnNode returns a copy of what is on a node, to edit and put back.
func (s *instances) copyOnNode(node model.NodeID) *nodeInstances {
	n, ok := s.onNode.Get(node)
	if !ok {
		return new(nodeInstances)
	}
	return &nodeInstances{append(make([]model.InstanceID, 0, len(n.ids)+1), n.ids...),
		append(make([]ownedPort, 0, len(n.ports)+1), n.ports...)}
}

func (s *instances) putOnNode(node model.NodeID, n *nodeInstances) {
	if len(n.ids) == 0 {
		s.onNode.del(node)
	} else {
		s.onNode.put(node, n)
	}
}

// indexOnNode updates whether an instance is listed on its node, and which ports it owns there. An instance that waits
// for room owns only those of its ports that are free. It takes over the others when their owners free them.
func (s *instances) indexOnNode(row, before, after *Instance) {
	claims := len(row.Claims.Ports) > 0 &&
		(before.takesRoom() != after.takesRoom() || before.WaitsForRoom() || after.WaitsForRoom())
	if before != nil && after != nil && !claims {
		return
	}
	n := s.copyOnNode(row.Node)
	if before == nil {
		n.add(row.ID)
	}
	if claims {
		n.claim(row, after.holdsClaims())
	}
	if after == nil {
		n.remove(row.ID)
	}
	s.putOnNode(row.Node, n)
}

// If holds is true, claim makes an instance the owner of those of its ports that are free. Otherwise claim frees the
// ports that the instance owns.
func (n *nodeInstances) claim(i *Instance, holds bool) {
	for _, p := range i.Claims.Ports {
		switch owner, taken := n.ownerOf(p.Number); {
		case holds && !taken:
			n.own(p.Number, i.ID)
		case !holds && owner == i.ID:
			n.free(p.Number)
		}
	}
}

func (n *nodeInstances) add(id model.InstanceID) {
	at, there := slices.BinarySearch(n.ids, id)
	if there {
		return
	}
	n.ids = slices.Insert(n.ids, at, id)
	for i := range n.ports {
		n.ports[i].owner += int32(count(int(n.ports[i].owner) >= at))
	}
}

// remove takes an instance off the list. The instance must own no ports any more.
func (n *nodeInstances) remove(id model.InstanceID) {
	at, there := slices.BinarySearch(n.ids, id)
	if !there {
		return
	}
	n.ids = slices.Delete(n.ids, at, at+1)
	for i := range n.ports {
		n.ports[i].owner -= int32(count(int(n.ports[i].owner) > at))
	}
}

// own makes a listed instance the owner of a port. It does nothing if the port has an owner or the instance is not
// listed.
func (n *nodeInstances) own(port int, id model.InstanceID) {
	owner, there := slices.BinarySearch(n.ids, id)
	at, taken := n.find(port)
	if there && !taken {
		n.ports = slices.Insert(n.ports, at, ownedPort{int32(port), int32(owner)})
	}
}

func (n *nodeInstances) free(port int) {
	if at, taken := n.find(port); taken {
		n.ports = slices.Delete(n.ports, at, at+1)
	}
}

func (n *nodeInstances) find(port int) (at int, taken bool) {
	return slices.BinarySearchFunc(n.ports, port, func(p ownedPort, port int) int {
		return cmp.Compare(int(p.number), port)
	})
}

func (n *nodeInstances) ownerOf(port int) (model.InstanceID, bool) {
	at, taken := n.find(port)
	if !taken {
		return "", false
	}
	return n.ids[n.ports[at].owner], true
}

// load adds an instance that was read from a snapshot. If owns is true, load also makes the instance the owner of its
// ports. It returns an error if a port has another owner, unless the instance waits for that owner to stop.
func (n *nodeInstances) load(i *Instance, owns bool) error {
	n.add(i.ID)
	if !owns {
		return nil
	}
	for _, p := range i.Claims.Ports {
		switch owner, taken := n.ownerOf(p.Number); {
		case int(int32(p.Number)) != p.Number:
			return damaged("instance %s holds the port %d", i.ID, p.Number)
		case !taken:
			n.own(p.Number, i.ID)
		case !slices.Contains(i.Links.Awaits, owner):
			return damaged("instances %s and %s hold the same port %d of node %s", owner, i.ID, p.Number, i.Node)
		}
	}
	return nil
}

// nodeIndexes checks that the list of each node is in order and matches the rows of instances.
func (c *checker) nodeIndexes() {
	on, owners := 0, 0
	for id, n := range c.s.onNode.All() {
		c.want(len(n.ids) > 0 && slices.IsSortedFunc(n.ids, func(a, b model.InstanceID) int {
			return cmp.Or(cmp.Compare(a, b), -1)
		}),
			"the list of instances of node %s is empty, or out of order: %v", id, n.ids)
		c.want(slices.IsSortedFunc(n.ports, func(a, b ownedPort) int { return cmp.Or(cmp.Compare(a.number, b.number), -1) }),
			"the list of ports of node %s is out of order: %v", id, n.ports)
		c.want(!slices.ContainsFunc(n.ports, func(p ownedPort) bool { return p.owner < 0 || int(p.owner) >= len(n.ids) }),
			"the list of ports of node %s has one of nobody: %v", id, n.ports)
		on += len(n.ids)
		owners += len(n.ports)
	}
	for id, i := range c.s.Instances.All() {
		n, there := c.s.onNode.Get(i.Node)
		if there {
			_, there = slices.BinarySearch(n.ids, id)
		}
		c.want(there, "instance %s is missing in an index", id)
	}
	c.want(on == c.s.Instances.Len(), "the index of instances of nodes has %d entries, the rows %d",
		on, c.s.Instances.Len())
	c.want(owners == c.ports, "the index of owners of ports has %d entries, the rows %d", owners, c.ports)
}
