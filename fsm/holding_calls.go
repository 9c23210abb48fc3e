package fsm

import (
	"cmp"
	"slices"

	"github.com/outspan/outspan/model"
)

// callConcerned makes agents read their assignments again after the unknown instances of a node changed from was to
// now. It does so for the agent of the node, and for the agents with an instance in a slot that a changed unknown
// instance may hold, because the instance in the slot may have to start or stop.
func (s *State) callConcerned(node model.NodeID, was, now []model.Holding) {
	changed := append(holdingsWithout(was, now), holdingsWithout(now, was)...)
	// an unknown instance that isn't late and whose group is not known may hold any slot
	if slices.ContainsFunc(changed, func(h model.Holding) bool { return h.Group == "" && !h.Late }) {
		s.callAgents()
		return
	}
	called := map[model.NodeID]bool{node: true}
	s.callAgent(node)
	for _, h := range changed {
		nodes := s.nodesConcerned(node, h)
		for _, id := range nodes {
			if !called[id] {
				called[id] = true
				s.callAgent(id)
			}
		}
	}
}

// nodesConcerned lists the nodes with an instance in a slot that the unknown instance h of a node may hold. If the
// group of h is not known, these are the slots of all groups that have an instance on h's node. The list may contain a
// node twice.
func (s *instances) nodesConcerned(node model.NodeID, h model.Holding) (nodes []model.NodeID) {
	if h.Group != "" {
		for inst := range s.InstancesInSlot(h.Group, h.Slot) {
			nodes = append(nodes, inst.Node)
		}
		return nodes
	}
	seen := map[model.GroupID]bool{}
	for own := range s.InstancesOn(node) {
		if seen[own.Group] {
			continue
		}
		seen[own.Group] = true
		for inst := range s.InstancesOf(own.Group) {
			nodes = append(nodes, inst.Node)
		}
	}
	return nodes
}

// holdingsWithout returns the holdings in list that are missing or different in other. Both lists are in order of id.
func holdingsWithout(list, other []model.Holding) (rest []model.Holding) {
	for _, h := range list {
		i, found := slices.BinarySearchFunc(other, h.ID, func(o model.Holding, id model.InstanceID) int {
			return cmp.Compare(o.ID, id)
		})
		if !found || !equalHoldings(h, other[i]) {
			rest = append(rest, h)
		}
	}
	return rest
}
