package fsm

import "github.com/outspan/outspan/model"

// Eligible returns nil if new instances may be placed on the node, or the reason why not. Code: node_not_eligible.
func (s *State) Eligible(n *Node) *model.Error {
	if n.Intent != model.IntentActive {
		return model.Refuse(model.CodeNodeNotEligible, "node %s is %s", n.Name, n.Intent)
	}
	return s.fit(n)
}

// WaitsForTurn reports whether the node is in a running drain and its turn has not begun.
func (s *fleet) WaitsForTurn(n *Node) bool {
	d, ok := s.RunningDrain(n)
	if !ok {
		return false
	}
	part, _ := d.Node(n.ID)
	return !part.Turn
}

// Takes returns nil if a new instance of the group may be placed on the node, or the reason why not. An eligible node
// takes every group. A node that waits for its turn in a drain takes groups for which CanDetour is true. Without these
// nodes, a drain of all nodes would have no place for the instances of the first ones. Code: node_not_eligible.
func (s *State) Takes(n *Node, spec *model.GroupSpec) *model.Error {
	if n.Intent == model.IntentDraining && CanDetour(spec) && s.WaitsForTurn(n) {
		return s.fit(n)
	}
	return s.Eligible(n)
}

// CanDetour reports whether instances of a group may be placed on a node that waits for its turn in a drain. The node's
// turn evicts them again, so the group must have no volumes, must not be a system group, and must allow evictions.
func CanDetour(spec *model.GroupSpec) bool {
	return len(spec.Volumes) == 0 && spec.Role != model.RoleSystem && spec.Eviction.Mode != model.ModeNever
}

// fit is Eligible without the check of the node's intent.
func (s *State) fit(n *Node) *model.Error {
	why := ""
	switch {
	case n.Health == model.HealthOffline:
		why = "is offline"
	case s.AgentRevoked(n.Name):
		why = "has a revoked certificate: outspan join lets it return"
	case n.Health == model.HealthUnreachable:
		why = "is unreachable: its heartbeats arrive, but its agent gets no answers from the servers; look at the agent's " +
			"log, its certificate and its list of servers"
	case n.Health == model.HealthDegraded && !s.Settings.PlaceOnDegraded:
		why = "is degraded"
	case n.Troubled() && !s.Settings.PlaceOnDegraded:
		why = "is degraded: " + n.Self.Words()
	case n.Return.Recovering:
		why = "has not sent its inventory yet"
	case n.Restore.InventoryOwed:
		why = "has not told since the restore what it runs"
	case n.Shape.Capacity.MemoryBytes <= 0:
		why = "has no known capacity"
	case s.Now < n.Return.HeldUntil:
		why = "is held back for " + n.Return.HeldUntil.Sub(s.Now).String() + " after flapping"
	default:
		return nil
	}
	return model.Refuse(model.CodeNodeNotEligible, "node %s %s", n.Name, why)
}
