package fsm

import "github.com/outspan/outspan/model"

// Eligible returns nil if new instances may be placed on the node, or why not. Eligibility is derived, never set.
func (s *State) Eligible(n *Node) *model.Error {
	if n.Intent != model.IntentActive {
		return model.Refuse(model.CodeNodeNotEligible, "node %s is %s", n.Name, n.Intent)
	}
	return s.fit(n)
}

// WaitsForTurn reports whether a node is in a drain in which its turn has not come; see DrainOptions.MaxParallelNodes.
func (s *fleet) WaitsForTurn(n *Node) bool {
	d, ok := s.RunningDrain(n)
	if !ok {
		return false
	}
	part, _ := d.Node(n.ID)
	return !part.Turn
}

// Takes is Eligible for one instance of a group. A node that waits for its turn in a drain also takes groups without
// data that may be evicted, because they can leave again with the drain. Otherwise the instances of a drain that takes
// turns would have nowhere to go while the other nodes wait.
func (s *State) Takes(n *Node, spec *model.GroupSpec) *model.Error {
	if n.Intent == model.IntentDraining && CanDetour(spec) && s.WaitsForTurn(n) {
		return s.fit(n)
	}
	return s.Eligible(n)
}

// CanDetour reports whether instances of a group may be placed on a node that waits for its turn in a drain.
func CanDetour(spec *model.GroupSpec) bool {
	return len(spec.Volumes) == 0 && spec.Role != model.RoleSystem && spec.Eviction.Mode != model.ModeNever
}

// fit says why a node whose intent allows instances can't take any. Code: node_not_eligible.
func (s *State) fit(n *Node) *model.Error {
	why := ""
	switch {
	case n.Health == model.HealthOffline:
		why = "is offline"
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
