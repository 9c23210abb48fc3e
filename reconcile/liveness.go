package reconcile

import (
	"fmt"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

const (
	calmFor     = 60 * model.Second // how long fewer than half the limit of nodes must have been out before a hold ends
	overrideFor = 10 * model.Minute // after an operator ended a hold, no hold begins for this long
	microToken  = 1_000_000         // what declaring one node offline takes out of the token bucket
	minBurst    = 2                 // at least this many nodes may be declared offline at once
)

// Interval returns how often agents send heartbeats: a sixth of offlineAfter, at least 300 ms and at most 10 s.
func Interval(offlineAfter model.Duration) model.Duration {
	return fsm.HeartbeatInterval(offlineAfter)
}

type nodeCounts struct {
	nodes  int
	judged int // nodes that the guard against mass eviction considers; see fsm.Node.Judged
	// judged nodes that are out (see isOut), or whose own agents report troubles
	out       int
	sick      int         // nodes in out only because of their own agents' reports
	unheard   int         // judged nodes, not in out, that neither this leader nor, lately, any other server has heard
	back      int         // offline nodes in out that are heard again but have not registered again yet
	domain    string      // a failure domain that is out as a whole while other nodes are out too; "" if no domain is
	candidate []*fsm.Node // nodes to write as offline if no hold is active, the longest silent first
	deaf      int         // judged nodes whose agents get no answers from the servers
	gossip    []*fsm.Node // nodes whose health differs from what gossip or their heartbeats show
}

// watchNodes writes the health that the evidence shows for each node. A hold prevents the most expensive mistake: to
// replace the instances of many nodes although only the network is broken.
func (p *pass) watchNodes() {
	c := p.count()
	p.hold(&c)
	if !p.state().Hold.Active {
		p.writeOffline(&c)
	} else {
		for _, n := range c.candidate {
			p.plan.refuse("node/"+string(n.ID),
				model.Refuse(model.CodeHold, "node %s is silent, but so are too many others", n.Name))
		}
	}
	for _, n := range c.gossip {
		p.judgeHealth(p.node(n.ID), &c)
	}
}

func (p *pass) count() nodeCounts {
	var c nodeCounts
	interval := Interval(p.in.State.Settings.OfflineAfter)
	for id, n := range p.state().Nodes.All() {
		c.nodes++
		live, known := p.in.Live[id]
		if known && n.Health != model.HealthOffline {
			if live.Age > 3*interval { // the node may be failing: look again soon, even without new evidence
				p.plan.wakeAt(p.in.Now.Add(interval))
			}
			if live.Silent && !live.Awaited(p.state(), p.in.Now) {
				c.candidate = append(c.candidate, n)
			}
			if health, _ := healthOf(n, live); health != n.Health {
				c.gossip = append(c.gossip, n)
			}
		}
		if n.Troubled() {
			p.troubled = append(p.troubled, id)
		}
		if !n.Judged() {
			continue
		}
		c.judged++
		if live.Deaf > 0 {
			c.deaf++
		}
		switch {
		case p.out(n, live, known):
			c.out++
			if known && !live.Silent && !live.Unheard && live.Age <= 3*interval {
				c.back++
			}
		case n.Troubled():
			c.out++
			c.sick++
		case live.Unheard && live.SeenBy == "":
			c.unheard++
		}
	}
	if c.out > 2 { // DomainOut needs at least three: a domain of two nodes, and one more node
		c.domain = p.state().DomainOut(func(n *fsm.Node) bool { return p.isOut(n) || n.Troubled() })
	}
	slices.SortStableFunc(c.candidate, func(a, b *fsm.Node) int { return int(p.in.Live[b.ID].Age - p.in.Live[a.ID].Age) })
	return c
}

// isOut reports whether a node is offline, or its heartbeats are late and no other server heard it lately.
func (p *pass) isOut(n *fsm.Node) bool {
	live, known := p.in.Live[n.ID]
	return p.out(n, live, known)
}

// out is isOut for a caller that already has the node's evidence.
func (p *pass) out(n *fsm.Node, live fsm.Liveness, known bool) bool {
	return n.Health == model.HealthOffline || known && live.SeenBy == "" && p.late(live)
}

// late reports whether a node's heartbeats have been missing for more than three intervals. A node that this leader has
// never heard is late only after the longer of offline_after and 15 s, because after a restart of all servers every
// node is unheard for a moment. A node that is awaited is not late.
func (p *pass) late(live fsm.Liveness) bool {
	// the leader itself was paused lately and may have missed heartbeats
	if live.Paused {
		return false
	}
	if live.Unheard {
		return !live.Awaited(p.state(), p.in.Now) && live.Age >= max(p.in.State.Settings.OfflineAfter, fsm.UnheardFor)
	}
	return live.Age > 3*Interval(p.in.State.Settings.OfflineAfter)
}

// limit returns 100 times the number of nodes that may be out before a hold begins.
func (c *nodeCounts) limit() int { return fsm.HoldLimit(c.judged) }

// tooMany returns why a hold should begin, or "" if it should not.
func (c *nodeCounts) tooMany() string {
	what := "silent"
	switch {
	case c.sick == c.out:
		what = "degraded by their own agents' word"
	case c.sick > 0:
		what = "silent or degraded by their own agents' word"
	}
	back := ""
	if c.back > 0 {
		back = fmt.Sprintf(" or offline; %d of them are heard again and have yet to register", c.back)
	}
	switch {
	case c.out*100 > c.limit():
		return fmt.Sprintf("%d of %d nodes are %s%s", c.out, c.judged, what, back)
	case c.domain != "":
		return fmt.Sprintf("the whole failure domain %s and others are %s, %d of %d nodes%s", c.domain,
			what, c.out, c.judged, back)
	}
	return ""
}

// hold begins a hold if too many nodes are out, before the first of them is written as offline. It begins no hold for
// overrideFor after an operator ended one. A hold ends when, for calmFor, its reason has been gone and fewer than half
// the limit of nodes have been out. The state stores when these conditions began, because leaders may change more
// often.
func (p *pass) hold(c *nodeCounts) {
	h, why := p.state().Hold, c.tooMany()
	if !h.Active {
		if why != "" && !(h.Reason != "" && p.in.Now < h.Since.Add(overrideFor)) {
			p.observe(&fsm.HoldSet{Active: true, Reason: why})
		}
		return
	}
	// nodes that this leader has not heard yet may be out too
	calm := why == "" && c.out+c.unheard <= fsm.HoldCalm(c.judged)
	if calm != (h.Calm != 0) && p.observe(&fsm.HoldSet{Active: true, Calm: &calm}) {
		h = p.state().Hold
	}
	if calm && h.Calm != 0 && p.reached(max(h.Calm, h.Since).Add(calmFor)) {
		p.observe(&fsm.HoldSet{})
	}
}

func (p *pass) observe(c fsm.Command) bool {
	refusal := p.plan.note(c)
	if refusal != nil {
		p.plan.refuse("liveness", refusal)
	}
	return refusal == nil
}

// judgeHealth writes the health that healthOf returns, for a node that isn't offline. Such a change alone never evicts
// anything. If too many agents get no answers, the servers are at fault, and new instances still need nodes. So no node
// is written as unreachable.
func (p *pass) judgeHealth(n *fsm.Node, c *nodeCounts) {
	live, known := p.in.Live[n.ID]
	if !known || n.Health == model.HealthOffline {
		return
	}
	health, why := healthOf(n, live)
	if health == model.HealthUnreachable && (c.deaf*100 > c.limit() || c.deaf == c.judged) {
		p.plan.refuse("node/"+string(n.ID),
			model.Refuse(model.CodeHold, "node %s gets no answers, but neither do too many others", n.Name))
		return
	}
	if health != n.Health {
		p.observe(&fsm.NodeHealth{ID: n.ID, Health: health, BootID: n.Agent.BootID, Epoch: n.Agent.Epoch, Reason: why})
	}
}

// healthOf returns the health that the evidence shows for a node that isn't offline, and why.
func healthOf(n *fsm.Node, live fsm.Liveness) (health model.Health, why string) {
	switch {
	case live.Deaf > 0:
		return model.HealthUnreachable, fmt.Sprintf("no server has answered its agent for %s", live.Deaf)
	case n.Health == model.HealthUnreachable && live.Unheard:
		return n.Health, "" // the agent has not reported to this leader yet whether it gets answers
	}
	return gossipHealth(n, live), "gossip: " + string(live.Gossip)
}

// gossipHealth returns the health that gossip shows for a node that isn't offline. If gossip does not know the node, an
// unreachable node becomes online, and any other node keeps its health.
func gossipHealth(n *fsm.Node, live fsm.Liveness) model.Health {
	switch live.Gossip {
	case fsm.GossipDead:
		if plant.Is(plant.OfflineByGossip) {
			return model.HealthOffline
		}
		return model.HealthDegraded
	case fsm.GossipSuspect:
		return model.HealthDegraded
	case fsm.GossipAlive:
		return model.HealthOnline
	}
	if n.Health == model.HealthUnreachable {
		return model.HealthOnline
	}
	return n.Health
}

// writeOffline declares nodes offline, the longest silent first, as fast as the token bucket allows.
func (p *pass) writeOffline(c *nodeCounts) {
	if len(c.candidate) == 0 {
		return
	}
	perMilli, burst := int64(max(200, 10*c.nodes)), int64(max(minBurst, c.nodes*5/100))*microToken
	tokens := p.offlineTokens(perMilli, burst)
	for _, n := range c.candidate {
		if tokens < microToken {
			p.plan.wakeAt(p.in.Now.Add(model.Duration((microToken-tokens)/perMilli + 1)))
			p.plan.refuse("node/"+string(n.ID),
				model.Refuse(model.CodeHold, "node %s is silent; others were declared offline a moment ago", n.Name))
			continue
		}
		reason := fmt.Sprintf("no heartbeat for %s, a majority of servers agrees", p.in.Live[n.ID].Age)
		if p.observe(&fsm.NodeHealth{ID: n.ID, Health: model.HealthOffline, BootID: n.Agent.BootID,
			Epoch: n.Agent.Epoch, Reason: reason}) {
			tokens -= microToken
		}
	}
}

// offlineTokens returns how many tokens are in the bucket that limits how fast nodes are declared offline. The bucket
// has room for burst tokens and gains perMilli tokens each millisecond. The tokens already taken are computed from the
// nodes' rows, so a new leader keeps to the same rate.
func (p *pass) offlineTokens(perMilli, burst int64) int64 {
	var taken []model.Time
	for _, n := range p.state().Nodes.All() {
		if at := n.Return.OfflineSince; at > 0 && int64(p.in.Now.Sub(at))*perMilli < burst {
			taken = append(taken, at)
		}
	}
	slices.Sort(taken)
	tokens, last := burst, model.Time(0)
	for _, at := range taken {
		tokens = min(burst, tokens+refill(at.Sub(last), perMilli, burst)) - microToken
		last = at
	}
	return min(burst, tokens+refill(p.in.Now.Sub(last), perMilli, burst))
}

// refill returns how many tokens the bucket gains in the time d. The result is at most 2*burst, so the product can't
// overflow.
func refill(d model.Duration, perMilli, burst int64) int64 {
	if int64(d) > 2*burst/perMilli {
		return 2 * burst
	}
	return int64(d) * perMilli
}
