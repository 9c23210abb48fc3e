package fsm

import (
	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

const refusedHint = "if this machine is a copy, give its agent an empty data_dir; if nothing of the other one runs " +
	"any more, or there never was one: " +
	"stop this agent, remove the file refused from its data_dir, and start it"

// refusedBefore refuses an agent that was refused earlier because of another agent of its node, if the state can no
// longer compare the two agents. This is the case if the state does not know the node (old is nil), or if the node has
// not sent its inventory since a restore. Code: node_taken.
func (c *NodeRegister) refusedBefore(old *Node) *model.Error {
	switch {
	case !c.Refused:
		return nil
	case old == nil:
		return model.Refuse(model.CodeNodeTaken,
			"the agent of node %s was refused for another one of that node, which the servers don't know any more",
			c.Name).WithHint(refusedHint)
	case old.Restore.InventoryOwed:
		return model.Refuse(model.CodeNodeTaken,
			"the agent of node %s was refused for another one of that node, "+
				"which has not told since the restore what runs there", c.Name).
			WithHint(refusedHint)
	}
	return nil
}

// takesOver checks a registration of a node from a machine other than its last one. It refuses the registration while
// the only holder of a slot may still run on the last machine. It also refuses an agent that was refused before and has
// a copied data directory, because the original agent may only be restarting. Once the node is confirmed dead, any
// machine is allowed. Code: node_taken.
func (c *NodeRegister) takesOver(s *State, old *Node) *model.Error {
	if !old.Agent.OtherMachine(&c.Agent) || old.Return.ConfirmedDead || plant.Is(plant.ClonedMachine) {
		return nil
	}
	held := s.mayStillRun(old)
	isCopy := c.Agent.BootID == old.Agent.BootID && c.Agent.Copied(&old.Agent)
	if held == nil && isCopy && c.Refused {
		return model.Refuse(model.CodeNodeTaken,
			"the data directory of this agent is a copy of that of node %s at %s, for which it was refused before",
			old.Name, old.Agent.Address).
			WithHint(refusedHint)
	}
	if held == nil {
		return nil
	}
	if isCopy {
		return model.Refuse(model.CodeNodeTaken, "the data directory of this agent is a copy of that of node %s at %s: %s",
			old.Name, old.Agent.Address, held.Message).
			WithHint("give the copy an empty data_dir; if it replaces the other one, of which nothing runs any more: outspan "+
				"node confirm-dead %s --force", old.Name)
	}
	return model.Refuse(model.CodeNodeTaken, "node %s is another machine, at %s, and not the one at %s: %s", old.Name,
		old.Agent.Address, c.Agent.Address, held.Message).
		WithHint("a copy of a machine needs an empty data_dir; if this one replaces the other, which is off: outspan node "+
			"confirm-dead %s --force", old.Name)
}
