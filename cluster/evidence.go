package cluster

import (
	"slices"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Opinion is one voter's answer to the question for how long it has not heard some nodes.
type Opinion struct {
	Server model.ServerID
	Asked  time.Duration // how long ago the question was sent
	Calm   bool          // the voter was neither paused nor starved lately: its ages can be trusted
	Ages   map[model.NodeID]Age
}

// Fitness is whether the leader itself may judge.
type Fitness struct {
	Uptime time.Duration // of the leader's process
	Led    time.Duration // since its Barrier of this term was done
	Calm   time.Duration // since it was last paused or starved
}

// Evidence is all that is known of who is silent, as values. Weighing it is a function of it alone.
type Evidence struct {
	Threshold time.Duration // the setting offline_after
	Interval  time.Duration // H, of the heartbeats
	Fitness   Fitness
	Self      model.ServerID
	Voters    []model.ServerID
	Own       map[model.NodeID]Age
	Opinions  []Opinion // of other servers; at most one each counts
	Gossip    map[model.NodeID]fsm.Gossip
}

// Fit reports whether the leader may call any node silent: it has listened for as long as the threshold, has led
// for two heartbeats and at least 1 s, and was not paused or starved within that time.
func (e Evidence) Fit() bool {
	settled := max(2*e.Interval, time.Second)
	return e.Fitness.Uptime >= e.Threshold && e.Fitness.Led >= settled && e.Fitness.Calm >= settled
}

// Weigh says of one node whether every condition of the offline rule holds, but the mass guard:
// the leader is fit; its own age of the node reaches the threshold; a majority of the voters say the same, in
// answers no older than one heartbeat, where no answer is no opinion; nobody heard the node recently; and gossip
// does not see it alive, unless every voter answered and agrees.
//
// Of a node that the leader has not heard at all since it began to listen it says so only after fsm.UnheardFor: servers
// that all began at once give an agent that began meanwhile, too, time to register.
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

// count is how many voters, the leader among them, have not heard the node for the threshold, and one that has.
// A server without a vote can't agree, but what it heard is heard.
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

// hearer is a server that hears a node which the leader begins to miss. What it heard two heartbeats ago is nothing
// that the leader lacks.
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
