package fsm

import (
	"cmp"
	"slices"

	"github.com/outspan/outspan/model"
)

// A node has few instances and few owners of ports: they are one row in a table of nodes. Placing thousands of
// instances then touches few rows, while a table with a row for each instance would have thousands of rows written all
// over it.

// household is what is on a node: its instances in order of id, and the ports that they own in order of number.
type household struct {
	ids   []model.InstanceID
	ports []ownedPort
}

// ownedPort is a port and the place of its owner among the household's ids.
type ownedPort struct{ number, owner int32 }

// household returns a copy of a node's, to edit and to put back.
func (s *instances) household(node model.NodeID) *household {
	h, ok := s.households.Get(node)
	if !ok {
		return new(household)
	}
	return &household{append(make([]model.InstanceID, 0, len(h.ids)+1), h.ids...), append(make([]ownedPort, 0, len(h.ports)+1), h.ports...)}
}

func (s *instances) putHousehold(node model.NodeID, h *household) {
	if len(h.ids) == 0 {
		s.households.del(node)
	} else {
		s.households.put(node, h)
	}
}

// house keeps whether an instance stands in its node's household, and which ports it owns there. One that waits for
// room owns those that are free, and takes over the others as they come free.
func (s *instances) house(row, before, after *Instance) {
	claims := len(row.Claims.Ports) > 0 && (before.takesRoom() != after.takesRoom() || before.WaitsForRoom() || after.WaitsForRoom())
	if before != nil && after != nil && !claims {
		return
	}
	h := s.household(row.Node)
	if before == nil {
		h.join(row.ID)
	}
	if claims {
		h.claim(row, after.holdsClaims())
	}
	if after == nil {
		h.leave(row.ID)
	}
	s.putHousehold(row.Node, h)
}

// claim makes an instance the owner of those of its ports that are free, or frees those that it owns.
func (h *household) claim(i *Instance, holds bool) {
	for _, p := range i.Claims.Ports {
		switch owner, taken := h.ownerOf(p.Number); {
		case holds && !taken:
			h.own(p.Number, i.ID)
		case !holds && owner == i.ID:
			h.free(p.Number)
		}
	}
}

func (h *household) join(id model.InstanceID) {
	at, there := slices.BinarySearch(h.ids, id)
	if there {
		return
	}
	h.ids = slices.Insert(h.ids, at, id)
	for i := range h.ports {
		h.ports[i].owner += int32(count(int(h.ports[i].owner) >= at))
	}
}

// leave takes an instance out, and what ports it has left.
func (h *household) leave(id model.InstanceID) {
	at, there := slices.BinarySearch(h.ids, id)
	if !there {
		return
	}
	h.ids = slices.Delete(h.ids, at, at+1)
	h.ports = slices.DeleteFunc(h.ports, func(p ownedPort) bool { return int(p.owner) == at })
	for i := range h.ports {
		h.ports[i].owner -= int32(count(int(h.ports[i].owner) > at))
	}
}

// own makes an instance of the household the owner of a port that has none.
func (h *household) own(port int, id model.InstanceID) {
	owner, there := slices.BinarySearch(h.ids, id)
	at, taken := h.find(port)
	if there && !taken {
		h.ports = slices.Insert(h.ports, at, ownedPort{int32(port), int32(owner)})
	}
}

// free makes a port one without an owner.
func (h *household) free(port int) {
	if at, taken := h.find(port); taken {
		h.ports = slices.Delete(h.ports, at, at+1)
	}
}

func (h *household) find(port int) (at int, taken bool) {
	return slices.BinarySearchFunc(h.ports, port, func(p ownedPort, port int) int { return cmp.Compare(int(p.number), port) })
}

func (h *household) ownerOf(port int) (model.InstanceID, bool) {
	at, taken := h.find(port)
	if !taken {
		return "", false
	}
	return h.ids[h.ports[at].owner], true
}

// moveIn puts an instance into its node's household, and makes it the owner of its ports if it has a right to them now.
func (h *household) moveIn(i *Instance, owns bool) error {
	h.join(i.ID)
	if !owns {
		return nil
	}
	for _, p := range i.Claims.Ports {
		switch owner, taken := h.ownerOf(p.Number); {
		case int(int32(p.Number)) != p.Number:
			return damaged("instance %s holds the port %d", i.ID, p.Number)
		case !taken:
			h.own(p.Number, i.ID)
		case !slices.Contains(i.Links.Awaits, owner):
			return damaged("instances %s and %s hold the same port %d of node %s", owner, i.ID, p.Number, i.Node)
		}
	}
	return nil
}

// nodeIndexes holds that the household of each node is in order and has exactly what the rows say.
func (c *checker) nodeIndexes() {
	on, owners := 0, 0
	for id, h := range c.s.households.All() {
		c.want(len(h.ids) > 0 && slices.IsSortedFunc(h.ids, func(a, b model.InstanceID) int { return cmp.Or(cmp.Compare(a, b), -1) }),
			"the list of instances of node %s is empty, or out of order: %v", id, h.ids)
		c.want(slices.IsSortedFunc(h.ports, func(a, b ownedPort) int { return cmp.Or(cmp.Compare(a.number, b.number), -1) }),
			"the list of ports of node %s is out of order: %v", id, h.ports)
		c.want(!slices.ContainsFunc(h.ports, func(p ownedPort) bool { return p.owner < 0 || int(p.owner) >= len(h.ids) }),
			"the list of ports of node %s has one of nobody: %v", id, h.ports)
		on += len(h.ids)
		owners += len(h.ports)
	}
	for id, i := range c.s.Instances.All() {
		h, there := c.s.households.Get(i.Node)
		if there {
			_, there = slices.BinarySearch(h.ids, id)
		}
		c.want(there, "instance %s is missing in an index", id)
	}
	c.want(on == c.s.Instances.Len(), "the index of instances of nodes has %d entries, the rows %d", on, c.s.Instances.Len())
	c.want(owners == c.ports, "the index of owners of ports has %d entries, the rows %d", owners, c.ports)
}
