package fsm

import (
	"cmp"
	"slices"

	"github.com/outspan/outspan/model"
)

// callConcerned makes agents read their assignments again after the unknown instances of a node changed. The parameters
// was and now list these before and after the change. It calls the agent of the node, and the agents with an instance
// in a slot that a changed unknown instance may hold, because their instances may have to start or stop.
func (s *State) callConcerned(node model.NodeID, was, now []model.Holding) {
	changed := append(holdingsWithout(was, now), holdingsWithout(now, was)...)
	// an unknown instance may hold any slot if it isn't late and the agent does not know its group
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
// group of h is unknown, these are the slots of all groups that have an instance on the node. The list may contain a
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

// holdingsWithout returns the holdings in list that other lacks or has with other contents. Both lists are in order of
// id.
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
