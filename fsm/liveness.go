package fsm

import "github.com/outspan/outspan/model"

// Gossip is what memberlist reports of a node. It can make a node degraded, but it never causes an eviction.
type Gossip string

// The gossip states.
const (
	GossipUnknown Gossip = "unknown"
	GossipAlive   Gossip = "alive"
	GossipSuspect Gossip = "suspect"
	GossipDead    Gossip = "dead"
)

// UnheardFor is how long, at least, a new leader waits for a node that it has not heard yet before it treats the node
// as silent. UnheardFor is longer than the pauses of an agent that tries to register, which are 10 s at most.
const UnheardFor = 15 * model.Second

// Liveness is the leader's evidence about one node. It stays outside the log.
type Liveness struct {
	Age    model.Duration // since the leader last heard the node's heartbeat, or if never, since it began to listen
	Gossip Gossip
	// Unheard says that the leader has not heard the node at all since it began to listen. Age then says nothing about how
	// long the node was silent.
	Unheard bool
	// Paused says that the leader's process recently stood still or got too little CPU time. Heartbeats that it missed
	// then say nothing about the node.
	Paused bool
	// Silent says that every condition of the offline rule holds except the protection against mass eviction: the leader
	// is fit to judge, a majority of voters agree, no server has heard the node recently, and gossip does not see the node
	// alive. If all voters agree, gossip does not matter.
	Silent bool
	// SeenBy names a server that heard the node recently although the leader did not.
	SeenBy model.ServerID
	// Deaf is how long the node's agent has got no answer from the servers although its heartbeats arrive. It is 0 if that
	// is shorter than DeafAfter. Unless the node is unreachable already, it is also 0 until the leader has led for
	// DeafAfter.
	Deaf model.Duration
	// FactsGen is the generation of facts in the node's last heartbeat. If it is newer than Node.FactsGen, the agent's
	// report of these facts is on its way.
	FactsGen uint64
}

// awaitedMost is how long a leader waits for nodes that it has never heard while a restore is not confirmed. The wait
// has a limit because operators may take long to confirm.
const awaitedMost = 15 * model.Minute

// Awaited reports whether a node's silence means nothing because its agent may still be looking for the servers, for
// example after a recovery onto new servers. Only a node that this leader has never heard is awaited. While a restore
// is unconfirmed, it is awaited for up to awaitedMost. After the confirmation, it is awaited for offline_after.
func (l *Liveness) Awaited(s *State, now model.Time) bool {
	switch {
	case !l.Unheard:
		return false
	case s.Unconfirmed:
		return l.Age < awaitedMost
	}
	return s.Confirmed > 0 && now < s.Confirmed.Add(s.Settings.OfflineAfter)
}

// DeafAfter returns how long an agent may get no answer from the servers before its node is marked unreachable. It is
// the setting offline_after, but at least 10 s, because an election on a slow machine or the pause before an agent
// tries again can take that long.
func DeafAfter(offlineAfter model.Duration) model.Duration { return max(offlineAfter, 10*model.Second) }

// Judged reports whether the guard against mass eviction considers a node. It ignores disabled nodes, draining nodes
// without instances, and nodes that were confirmed dead.
func (n *Node) Judged() bool {
	emptied := n.Intent == model.IntentDraining && n.Placed.Instances == 0
	return n.Intent != model.IntentDisabled && !emptied && !n.Return.ConfirmedDead
}

const smallCluster = 10 // with fewer judged nodes, a hold begins above 50 % of them, otherwise above 34 %

// HoldLimit returns 100 times the number of nodes that may be out before a hold begins. That number is 34 % of the
// judged nodes, or 50 % in a small cluster, but at least 2.
func HoldLimit(judged int) int {
	percent := 34
	if judged < smallCluster {
		percent = 50
	}
	return max(200, percent*judged)
}

// HoldCalm returns how many nodes may be out when a hold ends: fewer than half of what HoldLimit allows.
func HoldCalm(judged int) int { return (HoldLimit(judged) - 1) / 200 }

// DomainOut returns a failure domain of at least two nodes that is out as a whole while other nodes are out too, or ""
// if there is no such domain. Only judged nodes count.
func (s *State) DomainOut(out func(*Node) bool) (domain string) {
	size, gone, all := map[string]int{}, map[string]int{}, 0
	var domains []string
	for _, n := range s.Nodes.All() {
		if !n.Judged() {
			continue
		}
		name, has := n.Shape.Labels[s.Settings.FailureDomainLabel]
		if has {
			if size[name]++; size[name] == 1 {
				domains = append(domains, name)
			}
		}
		if out(n) {
			all++
			gone[name]++
		}
	}
	for _, name := range domains {
		if size[name] > 1 && gone[name] == size[name] && all > gone[name] {
			domain = name
		}
	}
	return domain
}
