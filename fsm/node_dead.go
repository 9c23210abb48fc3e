package fsm

import "github.com/outspan/outspan/model"

func (c *NodeConfirmDead) apply(s *State) error {
	n, ok := s.Nodes.Get(c.ID)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no node %s", c.ID)
	}
	if n.Health != model.HealthOffline {
		return model.Refuse(model.CodeConflict, "node %s is %s: only an offline node can be confirmed dead", n.Name,
			n.State()).WithHint("to stop using a machine that answers: outspan node disable %s", n.Name)
	}
	word := "confirmed dead by the operator"
	if refusal := s.mayStillRun(n); refusal != nil {
		if !c.Force {
			return refusal
		}
		word += ", by force while it might still run"
	}
	s.stopAll(c.ID, word)
	current, _ := s.Nodes.Get(c.ID)
	next := *current
	next.Return.ConfirmedDead = true
	s.setNode(current, next)
	current, _ = s.Nodes.Get(c.ID)
	s.setRestore(current, NodeRestore{Raised: current.Restore.Raised})
	return nil
}

// stopAll marks every instance on a node as stopped. The reason of the stops is word.
func (s *State) stopAll(node model.NodeID, word string) {
	var there []*Instance
	for inst := range s.InstancesOn(node) {
		if inst.holdsClaims() {
			there = append(there, inst)
		}
	}
	for _, row := range there {
		// an earlier stop in this loop may have changed the row: when the victims on a node stop, their waiting preemptor
		// gets the room
		if inst, ok := s.Instances.Get(row.ID); ok && inst.holdsClaims() {
			s.confirmStopped(inst, model.CauseNodeOffline, word)
		}
	}
}
