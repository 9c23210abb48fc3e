package fsm

import "github.com/outspan/outspan/model"

// Gossip is what memberlist thinks of a node. It makes a node degraded at most; it never evicts.
type Gossip string

// The gossip states.
const (
	GossipUnknown Gossip = "unknown"
	GossipAlive   Gossip = "alive"
	GossipSuspect Gossip = "suspect"
	GossipDead    Gossip = "dead"
)

// UnheardFor is how long a leader waits at least for a node that it has not heard since it began, before it counts it
// as silent: longer than the pauses of an agent that tries to register, 10 s at most.
const UnheardFor = 15 * model.Second

// Liveness is the leader's evidence about one node. It stays outside the log.
type Liveness struct {
	Age    model.Duration // since the leader last heard its heartbeat, or since it began to listen
	Gossip Gossip
	// Unheard says that the leader has not heard it at all since it began to listen: Age is then no silence of the
	// node's.
	Unheard bool
	// Paused says that the leader was paused or starved lately: what it did not hear meanwhile says nothing of the
	// node.
	Paused bool
	// Silent says that every condition of the offline rule holds but the mass guard: the leader is fit to judge, a
	// majority of voters agree, nobody vetoes, and gossip does not see the node.
	Silent bool
	// SeenBy names a server that heard the node recently although the leader did not.
	SeenBy model.ServerID
	// Deaf is for how long the servers have not answered the node's agent, although its heartbeats arrive; 0 while that
	// is no longer than DeafAfter.
	Deaf model.Duration
	// FactsGen is the generation of facts that its last heartbeat told of. While it is newer than the state's, a report
	// is on its way.
	FactsGen uint64
}

// DeafAfter is for how long an agent may get no answer from the servers before its node is unreachable: what is decided
// for it does not arrive. It is the setting offline_after, and at least 10 s, the length of an election on a slow
// machine and the pauses of an agent that tries again.
func DeafAfter(offlineAfter model.Duration) model.Duration { return max(offlineAfter, 10*model.Second) }
