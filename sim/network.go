package sim

import (
	"math/rand/v2"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// hearing is what one server heard of one node.
type hearing struct {
	linked bool       // heartbeats get through now
	heard  bool       // one got through since the server started
	last   model.Time // while not linked: when the last one did
	since  model.Time // while linked: since when
	asked  model.Time // when its agent last asked the server something, which is as good as a heartbeat
	gaveUp uint64     // the epoch that the server agreed to call offline: it answers its heartbeats no more
}

// network is who reaches whom, and what heartbeats and gossip say by that. Heartbeats are no events: when the last one
// got through follows from since when two are linked.
type network struct {
	w       *world
	cut     [][servers]bool // by node: no packet gets through, either way
	hears   [][servers]hearing
	suspect []model.Time // by node: until when gossip suspects it for no reason
	lossy   int          // percent of the messages that are lost
	twice   int          // percent that arrive a second time, later
	watched bool         // somebody is silent, and the leader looks again soon
}

func newNetwork(w *world) *network { return &network{w: w} }

func (n *network) join(*machine) {
	n.cut = append(n.cut, [servers]bool{})
	n.hears = append(n.hears, [servers]hearing{})
	n.suspect = append(n.suspect, 0)
}

// interval is H, that of heartbeats.
func (n *network) interval() model.Duration {
	return reconcile.Interval(n.w.log.first.Settings.OfflineAfter)
}

// linked reports whether packets get through between a node's agent and a server.
func (n *network) linked(node, server int) bool {
	return n.w.nodes[node].runs() && n.w.log.servers[server].up && !n.cut[node][server]
}

// changed takes note of who is linked now.
func (n *network) changed() {
	for i, m := range n.w.nodes {
		for s := range servers {
			h, now := &n.hears[i][s], n.linked(i, s)
			if !n.w.log.servers[s].up {
				*h = hearing{last: n.w.now, gaveUp: h.gaveUp}
				continue
			}
			switch {
			case now && !h.linked:
				h.linked, h.since = true, n.w.now
				n.w.after(n.first(), func() { m.attach() })
			case !now && h.linked:
				h.last, h.heard = n.lastBeat(i, s), n.heardOnce(i, s)
				h.linked = false
			}
		}
		m.leaseMoved()
	}
	n.watch()
}

// first is how long it takes until a link that is there again is used.
func (n *network) first() model.Duration { return between(n.w.chance, 20, 600) }

// lastBeat is when a server last heard a node.
func (n *network) lastBeat(node, server int) model.Time {
	h := &n.hears[node][server]
	if !h.linked {
		return max(h.last, h.asked)
	}
	beat := n.beatBefore(node, n.w.now)
	if beat < h.since {
		return max(h.last, h.asked)
	}
	return max(beat, h.asked)
}

// asks notes that a node's agent got through to a server.
func (n *network) asks(node, server int) {
	h := &n.hears[node][server]
	h.asked, h.heard = n.w.now, true
}

func (n *network) heardOnce(node, server int) bool {
	h := &n.hears[node][server]
	return h.heard || h.linked && n.beatBefore(node, n.w.now) >= h.since
}

// beatBefore is the latest time up to t at which a node sends heartbeats: each has its own phase.
func (n *network) beatBefore(node int, t model.Time) model.Time {
	h := int64(n.interval())
	phase := int64(node*977) % h
	return model.Time((int64(t)-phase)/h*h + phase)
}

// age is for how long a server has not heard a node, and whether it ever did.
func (n *network) age(node, server int) (model.Duration, bool) {
	heard := n.heardOnce(node, server)
	last := n.lastBeat(node, server)
	if !heard {
		last = max(n.w.log.servers[server].started, n.w.nodes[node].joined)
	}
	return n.w.now.Sub(last), heard
}

// gossip is what memberlist says of a node: any server that is linked with it keeps it alive for all.
func (n *network) gossip(node int) fsm.Gossip {
	if n.w.now < n.suspect[node] {
		return fsm.GossipSuspect
	}
	last := model.Time(0)
	for s := range servers {
		if h := &n.hears[node][s]; h.linked {
			return fsm.GossipAlive
		} else if h.last > last {
			last = h.last
		}
	}
	switch silent := n.w.now.Sub(last); {
	case silent > 10*model.Second:
		return fsm.GossipDead
	case silent > 3*model.Second:
		return fsm.GossipSuspect
	}
	return fsm.GossipAlive
}

// live is the evidence of a leader, by the rule of docs/model.md, "Offline".
func (n *network) live(l *leader) map[model.NodeID]fsm.Liveness {
	state := &n.w.log.first
	threshold, interval := state.Settings.OfflineAfter, n.interval()
	out := make(map[model.NodeID]fsm.Liveness, len(n.w.nodes))
	for i, m := range n.w.nodes {
		age, heard := n.age(i, l.id)
		live := fsm.Liveness{Age: age, Gossip: n.gossip(i), Unheard: !heard, FactsGen: m.factsHeard(l.id)}
		if age >= min(threshold, interval*5/2) && !n.w.log.stuck {
			live.Silent, live.SeenBy = n.silent(l, i, age, threshold, interval, live.Gossip)
		}
		out[m.id] = live
	}
	return out
}

// silent weighs what the other servers say of a node. Those that agree give it up: they renew its lease no more.
func (n *network) silent(l *leader, node int, age, threshold, interval model.Duration,
	gossip fsm.Gossip) (bool, model.ServerID) {
	agree := []int{l.id}
	recently := threshold
	if age < threshold {
		recently = 2 * interval
	}
	for s, server := range n.w.log.servers {
		if s == l.id || !server.up || server.lag > 2000 {
			continue // no answer is no opinion
		}
		other, heard := n.age(node, s)
		switch {
		case heard && other < recently:
			return false, model.ServerID("s" + string(rune('1'+s)))
		case other >= threshold && n.w.now.Sub(server.started) >= threshold:
			agree = append(agree, s)
		}
	}
	settled := max(2*interval, model.Second)
	led, up := n.w.now.Sub(l.since), n.w.now.Sub(n.w.log.servers[l.id].started)
	if age < threshold || led < settled || up < threshold || 2*len(agree) <= servers || gossip == fsm.GossipAlive &&
		len(agree) < servers {
		return false, ""
	}
	m := n.w.nodes[node]
	for _, s := range agree {
		h := &n.hears[node][s]
		if h.linked && h.gaveUp != m.epoch { // its next heartbeat is answered with that
			m.soon(n.beatBefore(node, n.w.now).Add(interval).Sub(n.w.now), m.attach)
		}
		h.gaveUp = m.epoch
	}
	m.leaseMoved()
	return true, ""
}

// watch has the leader look again now and then while somebody is not heard whom it does not know to be offline.
func (n *network) watch() {
	if n.watched || !n.anySilent() {
		return
	}
	n.watched = true
	n.w.after(max(n.interval()/2, 200), func() {
		n.watched = false
		if n.w.lead != nil {
			n.w.lead.poke()
		}
		n.watch()
	})
}

func (n *network) anySilent() bool {
	for i, m := range n.w.nodes {
		row, ok := n.w.log.first.Nodes.Get(m.id)
		if !ok {
			continue
		}
		if n.w.now < n.suspect[i] || row.Health == model.HealthDegraded {
			return true
		}
		for s := range servers {
			if !n.hears[i][s].linked && row.Health != model.HealthOffline {
				return true
			}
		}
	}
	return false
}

// published tells the agents that poll a server of new assignments.
func (n *network) published(server int) {
	for _, m := range n.w.nodes {
		if m.home == server {
			m.poll()
		}
	}
}

// send carries a message between a node's agent and the servers, if there is a way. It arrives late, twice or not at
// all.
func (n *network) send(node int, arrive func()) {
	r := n.w.chance
	if n.reach(node, r) < 0 || r.IntN(100) < n.lossy {
		n.w.counts[CountLostMessages]++
		return
	}
	delay := between(r, 1, 30)
	if r.IntN(30) == 0 {
		delay = between(r, 30, 1500)
	}
	n.w.after(delay, arrive)
	if r.IntN(100) < n.twice {
		n.w.counts[CountRepeated]++
		n.w.after(delay+between(r, 1, 8000), arrive)
	}
}

// reach is a server that a node's agent gets through to, or -1.
func (n *network) reach(node int, r *rand.Rand) int {
	from := r.IntN(servers)
	for i := range servers {
		if s := (from + i) % servers; n.linked(node, s) {
			return s
		}
	}
	return -1
}
