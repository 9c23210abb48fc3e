package cluster

import (
	"slices"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Opinion is what another server answered when the leader asked how long it had not heard some nodes.
type Opinion struct {
	Server model.ServerID
	Asked  time.Duration // how long ago the question was sent
	// Calm is true if the server was neither paused nor short of CPU time lately, so that its ages can be trusted. It is
	// false if the server was asked to give up nodes and could not record that on disk.
	Calm bool
	Ages map[model.NodeID]Age
}

// Fitness contains the facts that decide whether the leader may call nodes silent.
type Fitness struct {
	Uptime time.Duration // of the leader's process
	Led    time.Duration // since its leadership began in this term
	Calm   time.Duration // since the process was last paused or short of CPU time
}

// Evidence is everything that the leader knows about which nodes are silent. Weigh depends on nothing else.
type Evidence struct {
	Threshold time.Duration // the setting offline_after
	Interval  time.Duration // the interval H of heartbeats
	Fitness   Fitness
	Self      model.ServerID
	Voters    []model.ServerID
	Own       map[model.NodeID]Age
	Opinions  []Opinion // of other servers; at most one of each server is counted
	Gossip    map[model.NodeID]fsm.Gossip
}

// Fit reports whether the leader may call any node silent. The leader must have listened for Threshold. It must have
// led, and run without a pause, for two heartbeat intervals and at least 1 s.
func (e Evidence) Fit() bool {
	settled := max(2*e.Interval, time.Second)
	return e.Fitness.Uptime >= e.Threshold && e.Fitness.Led >= settled && e.Fitness.Calm >= settled
}

// Weigh returns what the evidence says of one node. Silent is true if every condition of the offline rule is met,
// except the brake against mass eviction (HOLD):
//   - The leader is fit and has itself not heard the node for Threshold.
//   - A majority of the voters has not heard the node for Threshold either. Answers that are older than one heartbeat
//     interval are ignored.
//   - No server that answered has heard the node within Threshold.
//   - Gossip does not show the node as alive, or all voters have not heard it for Threshold.
//
// A node that the leader has never heard is silent only after fsm.UnheardFor. An agent that starts at the same time as
// all servers needs this time to register.
func (e Evidence) Weigh(node model.NodeID) fsm.Liveness {
	own := e.Own[node]
	gossip := e.Gossip[node]
	if gossip == "" {
		gossip = fsm.GossipUnknown
	}
	out := fsm.Liveness{Age: model.Duration(own.Since.Milliseconds()), Gossip: gossip}
	if own.Since < e.Threshold || !own.Heard && own.Since < durationOf(fsm.UnheardFor) {
		out.SeenBy = e.hearer(node)
		return out
	}
	agree, seenBy := e.count(node)
	out.SeenBy = seenBy
	all := agree == len(e.Voters)
	out.Silent = e.Fit() && seenBy == "" && agree > len(e.Voters)/2 && (gossip != fsm.GossipAlive || all)
	return out
}

// count returns how many voters, including the leader, agree that they have not heard the node for Threshold. If a
// server has heard the node within Threshold, seenBy is that server, even if it has no vote.
func (e Evidence) count(node model.NodeID) (agree int, seenBy model.ServerID) {
	counted := map[model.ServerID]bool{}
	for _, v := range e.Voters {
		if v == e.Self {
			agree, counted[v] = 1, true
		}
	}
	for _, o := range e.Opinions {
		age, ok := o.Ages[node]
		if !ok || o.Asked > e.Interval || o.Server == e.Self || counted[o.Server] {
			continue
		}
		counted[o.Server] = true
		switch {
		case age.Heard && age.Since < e.Threshold:
			return agree, o.Server
		case age.Since >= e.Threshold && o.Calm && e.votes(o.Server):
			agree++
		}
	}
	return agree, ""
}

// hearer returns a server that heard the node within two heartbeat intervals. It returns an empty string if there is no
// such server, or if the leader itself heard the node in that time.
func (e Evidence) hearer(node model.NodeID) model.ServerID {
	if e.Own[node].Since < 2*e.Interval {
		return ""
	}
	for _, o := range e.Opinions {
		if age, ok := o.Ages[node]; ok && age.Heard && age.Since < 2*e.Interval &&
			o.Asked <= e.Interval && o.Server != e.Self {
			return o.Server
		}
	}
	return ""
}

func (e Evidence) answered(id model.ServerID) bool {
	return slices.ContainsFunc(e.Opinions, func(o Opinion) bool { return o.Server == id })
}

func (e Evidence) votes(id model.ServerID) bool {
	for _, v := range e.Voters {
		if v == id {
			return true
		}
	}
	return false
}
