package sim

import (
	"math/rand/v2"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// hearing is what one server has heard from one node.
type hearing struct {
	linked bool       // heartbeats get through now
	heard  bool       // the server has heard the node since it started; heardOnce also looks at the current link
	last   model.Time // when the server last heard the node before the link last broke
	since  model.Time // when the current link began; set while linked is true
	asked  model.Time // when the agent's last request arrived; it is as good as a heartbeat
	gaveUp uint64     // the epoch that this server agreed to call offline; it renews no lease of that epoch any more
}

// network models which packets get through, and what follows for heartbeats and gossip. Heartbeats are not events: the
// time of the last one is computed from when the link between node and server began or broke.
type network struct {
	w       *world
	cut     [][servers]bool // by node and server: true if no packet gets through, either way
	hears   [][servers]hearing
	suspect []model.Time // by node: until when gossip suspects the node without a reason
	lossy   int          // percentage of messages that are lost
	twice   int          // percentage of messages that arrive a second time, later
	watched bool         // watch has already planned the next decision
}

func newNetwork(w *world) *network { return &network{w: w} }

func (n *network) join(*machine) {
	n.cut = append(n.cut, [servers]bool{})
	n.hears = append(n.hears, [servers]hearing{})
	n.suspect = append(n.suspect, 0)
}

// interval returns the time between two heartbeats of a node.
func (n *network) interval() model.Duration {
	return reconcile.Interval(n.w.log.first.Settings.OfflineAfter)
}

// linked reports whether packets get through between a node's agent and a server.
func (n *network) linked(node, server int) bool {
	return n.w.nodes[node].runs() && n.w.log.servers[server].up && !n.cut[node][server]
}

// changed updates the links between nodes and servers, and the leases that depend on them. It must be called after
// every change of power, processes or cuts.
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

// first returns how long a new link takes until it carries its first packet.
func (n *network) first() model.Duration { return between(n.w.chance, 20, 600) }

// lastBeat returns when a server last heard a node, by a heartbeat or a request.
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

// asks records that a request of a node's agent reached a server.
func (n *network) asks(node, server int) {
	h := &n.hears[node][server]
	h.asked, h.heard = n.w.now, true
}

func (n *network) heardOnce(node, server int) bool {
	h := &n.hears[node][server]
	return h.heard || h.linked && n.beatBefore(node, n.w.now) >= h.since
}

// beatBefore returns the latest time up to t at which a node sends a heartbeat. Each node has its own phase.
func (n *network) beatBefore(node int, t model.Time) model.Time {
	h := int64(n.interval())
	phase := int64(node*977) % h
	return model.Time((int64(t)-phase)/h*h + phase)
}

// age returns for how long a server has not heard a node, and whether it has heard the node since the server started.
// If it has not, the duration is measured from the start of the server or from when the node joined, whichever is
// later.
func (n *network) age(node, server int) (model.Duration, bool) {
	heard := n.heardOnce(node, server)
	last := n.lastBeat(node, server)
	if !heard {
		last = max(n.w.log.servers[server].started, n.w.nodes[node].joined)
	}
	return n.w.now.Sub(last), heard
}

// gossip returns what gossip shows of a node. A node that is linked with any server is alive, unless the fault
// ActSuspect makes it suspected.
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

// live returns a leader's evidence about the nodes, by the rules in docs/model.md, "Offline".
func (n *network) live(l *leader) map[model.NodeID]fsm.Liveness {
	state := &n.w.log.first
	threshold, interval := state.Settings.OfflineAfter, n.interval()
	out := make(map[model.NodeID]fsm.Liveness, len(n.w.nodes))
	for i, m := range n.w.nodes {
		age, heard := n.age(i, l.id)
		live := fsm.Liveness{Age: age, Gossip: n.gossip(i), Unheard: !heard, FactsGen: m.factsHeard(l.id)}
		if age >= min(threshold, interval*5/2) && !n.w.log.isolated {
			live.Silent, live.SeenBy = n.silent(l, i, age, threshold, interval, live.Gossip)
		}
		out[m.id] = live
	}
	return out
}

// silent reports whether a majority of servers finds a node silent. If another server has heard the node recently,
// silent returns false and that server. If it returns true, the servers that agreed no longer renew the node's lease.
func (n *network) silent(l *leader, node int, age, threshold, interval model.Duration,
	gossip fsm.Gossip) (bool, model.ServerID) {
	agree := []int{l.id}
	recently := threshold
	if age < threshold {
		recently = 2 * interval
	}
	for s, server := range n.w.log.servers {
		if s == l.id || !server.up || server.lag > 2000 {
			continue // a server that does not answer has no opinion
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
		if h.linked && h.gaveUp != m.epoch { // the agent learns this from the answer to its next heartbeat
			m.soon(n.beatBefore(node, n.w.now).Add(interval).Sub(n.w.now), m.attach)
		}
		h.gaveUp = m.epoch
	}
	m.leaseMoved()
	return true, ""
}

// watch makes the leader decide again from time to time while a node is suspected, degraded, or silent but not offline.
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

// published answers the long polls at a server: each agent that polls it gets new assignments, if there are any.
func (n *network) published(server int) {
	for _, m := range n.w.nodes {
		if m.home == server {
			m.poll()
		}
	}
}

// send carries a message from a node's agent to the servers or back. The message is lost if no server is linked with
// the agent. It may also arrive late, twice, or not at all.
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

// reach draws a server that is linked with a node's agent. It returns -1 if there is none.
func (n *network) reach(node int, r *rand.Rand) int {
	from := r.IntN(servers)
	for i := range servers {
		if s := (from + i) % servers; n.linked(node, s) {
			return s
		}
	}
	return -1
}
