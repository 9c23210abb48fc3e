package fsm

import "github.com/outspan/outspan/model"

// Gossip is what memberlist thinks of a node. At worst it makes a node degraded; it never evicts.
type Gossip string

// The gossip states.
const (
	GossipUnknown Gossip = "unknown"
	GossipAlive   Gossip = "alive"
	GossipSuspect Gossip = "suspect"
	GossipDead    Gossip = "dead"
)

// UnheardFor is the least time that a new leader waits for a node that it has not heard yet, before the node counts as
// silent. It is longer than the pauses of an agent that tries to register, which are 10 s at most.
const UnheardFor = 15 * model.Second

// Liveness is the leader's evidence about one node. It stays outside the log.
type Liveness struct {
	Age    model.Duration // since the leader last heard its heartbeat, or since it began to listen
	Gossip Gossip
	// Unheard says that the leader has not heard the node at all since it began to listen. Age then says nothing about how
	// long the node was silent.
	Unheard bool
	// Paused says that the leader was paused or starved lately, so what it did not hear meanwhile says nothing about the
	// node.
	Paused bool
	// Silent says that every condition of the offline rule holds except the mass guard: the leader is fit to judge, a
	// majority of voters agree, no server vetoes, and gossip does not see the node.
	Silent bool
	// SeenBy names a server that heard the node recently although the leader did not.
	SeenBy model.ServerID
	// Deaf is how long the servers have not answered the node's agent although its heartbeats arrive; 0 up to DeafAfter.
	Deaf model.Duration
	// FactsGen is the generation of facts in the node's last heartbeat. While it is newer than the state's, a report is on
	// its way.
	FactsGen uint64
}

// DeafAfter returns how long an agent may get no answer from the servers before its node is unreachable, because
// decisions don't arrive there. It is the setting offline_after, but at least 10 s: the length of an election on a slow
// machine, and of the pauses of an agent that tries again.
func DeafAfter(offlineAfter model.Duration) model.Duration { return max(offlineAfter, 10*model.Second) }
