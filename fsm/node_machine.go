package fsm

import (
	"strings"

	"github.com/outspan/outspan/internal/plant"
)

// sameIDs compares what names two machines, parts between slashes: the installed system and the firmware. An agent lacks a part that it can't read. decided is
// false if no part is known of both.
func (a *AgentInfo) sameIDs(b *AgentInfo) (same, decided bool) {
	theirs := strings.Split(b.Machine, "/")
	for i, id := range strings.Split(a.Machine, "/") {
		if i >= len(theirs) || id == "" || theirs[i] == "" {
			continue
		}
		if id != theirs[i] {
			return false, true
		}
		decided = true
	}
	return decided, decided
}

// Elsewhere reports whether two agents of one node may run side by side, as after a machine was copied with its data directory: each has an address or a data
// directory of its own, or they are on different machines.
func (a *AgentInfo) Elsewhere(b *AgentInfo) bool {
	same, decided := a.sameIDs(b)
	return a.Address != b.Address || decided && !same || a.copied(b)
}

// copied reports whether the two have different data directories, so that one of these is a copy.
func (a *AgentInfo) copied(b *AgentInfo) bool { return a.Born != 0 && b.Born != 0 && a.Born != b.Born }

// otherMachine reports whether what runs by one agent's word can run on without the other one knowing it. A container that was copied on its kernel has another data
// directory. A copy of a machine has the id of the installed system and another address; so has a machine that was booted with another address, which can't be told apart without the firmware's id.
func (a *AgentInfo) otherMachine(b *AgentInfo) bool {
	same, decided := a.sameIDs(b)
	if decided && !same || a.BootID == b.BootID && a.copied(b) {
		return true
	}
	return a.BootID != b.BootID && a.Address != b.Address && !(same && a.firmware() != "" && a.firmware() == b.firmware())
}

func (a *AgentInfo) firmware() string {
	_, id, _ := strings.Cut(a.Machine, "/")
	return id
}

const refusedHint = "if this machine is a copy, give its agent an empty data_dir; if nothing of the other one runs any more, or there never was one: " +
	"stop this agent, remove the file refused from its data_dir, and start it"

// refusedBefore refuses an agent that was refused for another one of its node, where that one can't be compared with it any more: a restored state, or one that
// has forgotten the node, does not know it, or may know an earlier one. Old is the node's row, nil if there is none. Code: node_taken.
func (c *NodeRegister) refusedBefore(old *Node) *Error {
	switch {
	case !c.Refused:
		return nil
	case old == nil:
		return Refuse(CodeNodeTaken, "the agent of node %s was refused for another one of that node, which the servers don't know any more", c.Name).WithHint(refusedHint)
	case old.Restore.Owes:
		return Refuse(CodeNodeTaken, "the agent of node %s was refused for another one of that node, which has not told since the restore what runs there", c.Name).
			WithHint(refusedHint)
	}
	return nil
}

// takesOver refuses a registration by another machine than the last one while what only one may run may run there, and one from a copy of the data directory that was
// refused before: the agent of the first one may just be restarting. Code: node_taken.
func (c *NodeRegister) takesOver(s *State, old *Node) *Error {
	if !old.Agent.otherMachine(&c.Agent) || old.Return.ConfirmedDead || plant.Is(plant.ClonedMachine) {
		return nil
	}
	held := s.mayStillRun(old)
	isCopy := c.Agent.BootID == old.Agent.BootID && c.Agent.copied(&old.Agent)
	if held == nil && isCopy && c.Refused {
		return Refuse(CodeNodeTaken, "the data directory of this agent is a copy of that of node %s at %s, for which it was refused before", old.Name, old.Agent.Address).
			WithHint(refusedHint)
	}
	if held == nil {
		return nil
	}
	if isCopy {
		return Refuse(CodeNodeTaken, "the data directory of this agent is a copy of that of node %s at %s: %s", old.Name, old.Agent.Address, held.Message).
			WithHint("give the copy an empty data_dir; if it replaces the other one, of which nothing runs any more: outspan node confirm-dead %s --force", old.Name)
	}
	return Refuse(CodeNodeTaken, "node %s is another machine, at %s, and not the one at %s: %s", old.Name, old.Agent.Address, c.Agent.Address, held.Message).
		WithHint("a copy of a machine needs an empty data_dir; if this one replaces the other, which is off: outspan node confirm-dead %s --force", old.Name)
}
