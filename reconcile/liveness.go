package reconcile

import (
	"fmt"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

const (
	calmFor      = 60 * model.Second // a hold ends when its reason has been gone for this long
	overrideFor  = 10 * model.Minute // after an operator ended a hold, no hold begins for this long
	microToken   = 1_000_000         // one node going offline costs this much of the token bucket
	smallCluster = 10                // with fewer nodes than this, a hold begins above 50 % of them, otherwise above 34 %
	minBurst     = 2
)

// Interval returns how often agents send heartbeats: a sixth of offlineAfter, at least 300 ms and at most 10 s.
func Interval(offlineAfter model.Duration) model.Duration {
	return fsm.HeartbeatInterval(offlineAfter)
}

// nodeCounts is what the guard against mass eviction counts.
type nodeCounts struct {
	nodes  int // all nodes
	judged int // nodes that are meant to work; see judged
	// of the judged nodes: offline, silent for more than three intervals, or degraded by their own agents' reports
	out       int
	sick      int         // of out: degraded by their own agents' reports
	unheard   int         // not in out and never heard by this leader, so it can't judge them yet
	back      int         // of out: heard again, but not registered again yet
	domain    string      // a failure domain that is out as a whole while other nodes are out too; "" if none is
	candidate []*fsm.Node // nodes that would be written as offline without the guard, the longest silent first
	deaf      int         // of the judged nodes: those whose agents get no answers
	gossip    []*fsm.Node // nodes whose health differs from what gossip or their heartbeats show
}

// watchNodes writes what the evidence shows about each node. It guards against the most expensive mistake, which is to
// take a broken network for broken nodes.
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
			if live.Silent && !p.awaited(live) {
				c.candidate = append(c.candidate, n)
			}
			if health, _ := healthOf(n, live); health != n.Health {
				c.gossip = append(c.gossip, n)
			}
		}
		if n.Troubled() {
			p.troubled = append(p.troubled, id)
		}
		if !judged(n) {
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
	if c.out > 2 { // a whole domain has at least two nodes, and one more node must be out
		c.domain = p.domainOut(&c)
	}
	slices.SortStableFunc(c.candidate, func(a, b *fsm.Node) int { return int(p.in.Live[b.ID].Age - p.in.Live[a.ID].Age) })
	return c
}

// isOut reports whether a node is offline, or silent for more than three intervals.
func (p *pass) isOut(n *fsm.Node) bool {
	live, known := p.in.Live[n.ID]
	return p.out(n, live, known)
}

// out is isOut for a caller that has the node's evidence.
func (p *pass) out(n *fsm.Node, live fsm.Liveness, known bool) bool {
	return n.Health == model.HealthOffline || known && live.SeenBy == "" && p.late(live)
}

// domainOut returns a failure domain that is out as a whole while other nodes are out too; "" if none is.
func (p *pass) domainOut(c *nodeCounts) (out string) {
	label := p.in.State.Settings.FailureDomainLabel
	size, gone := map[string]int{}, map[string]int{}
	var domains []string
	for _, n := range p.state().Nodes.All() {
		if !judged(n) {
			continue
		}
		domain, has := n.Shape.Labels[label]
		if has {
			if size[domain]++; size[domain] == 1 {
				domains = append(domains, domain)
			}
		}
		if p.isOut(n) || n.Troubled() {
			gone[domain]++
		}
	}
	for _, d := range domains {
		if size[d] > 1 && gone[d] == size[d] && c.out > gone[d] {
			out = d
		}
	}
	return out
}

// late reports whether a node's heartbeats are missing. A node that this leader has never heard counts as late only
// after a longer time. After a restart of all servers every node is unheard for a moment although none is broken. While
// Paused is set, the leader itself was paused, so all nodes seem silent and none counts as late.
func (p *pass) late(live fsm.Liveness) bool {
	if live.Paused {
		return false // no node is declared offline either
	}
	if live.Unheard {
		return !p.awaited(live) && live.Age >= max(p.in.State.Settings.OfflineAfter, fsm.UnheardFor)
	}
	return live.Age > 3*Interval(p.in.State.Settings.OfflineAfter)
}

// awaitedMost bounds how long a leader waits for nodes that it has never heard while a restore is not confirmed.
// Operators may take long to confirm it.
const awaitedMost = 15 * model.Minute

// awaited reports whether a node's silence means nothing because the node may not have found the servers yet, for
// example after a recovery onto new servers. It is true if this leader has never heard the node, and the restore is
// unconfirmed or was confirmed only recently.
func (p *pass) awaited(live fsm.Liveness) bool {
	s := p.state()
	switch {
	case !live.Unheard:
		return false
	case s.Unconfirmed:
		return live.Age < awaitedMost
	}
	return s.Confirmed > 0 && p.in.Now < s.Confirmed.Add(s.Settings.OfflineAfter)
}

// judged reports whether a node is expected to send heartbeats. A disabled, emptied or confirmed-dead node is not.
func judged(n *fsm.Node) bool {
	emptied := n.Intent == model.IntentDraining && n.Placed.Instances == 0
	return n.Intent != model.IntentDisabled && !emptied && !n.Return.ConfirmedDead
}

// limit returns how many nodes may be out, times 100, before the leader holds. It is max(2, 34 %) of the judged nodes,
// or max(2, 50 %) in a small cluster.
func (c *nodeCounts) limit() int {
	percent := 34
	if c.judged < smallCluster {
		percent = 50
	}
	return max(200, percent*c.judged)
}

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

// hold begins a hold before the first of too many silent nodes is written as offline. It ends the hold when less than
// half the limit has been out for a minute. The start of that minute is kept in the state, because leaders may change
// more often than that. For this end, nodes that this leader has not heard yet count as out too.
func (p *pass) hold(c *nodeCounts) {
	h, why := p.state().Hold, c.tooMany()
	if !h.Active {
		if why != "" && !(h.Reason != "" && p.in.Now < h.Since.Add(overrideFor)) {
			p.observe(&fsm.HoldSet{Active: true, Reason: why})
		}
		return
	}
	calm := why == "" && (c.out+c.unheard)*200 < c.limit()
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

// judgeHealth writes a node's health if it isn't offline: degraded while gossip suspects it, unreachable while its
// agent gets no answers, otherwise online. This alone never evicts anything. If too many nodes get no answers, the
// servers are at fault and not the nodes. Then none becomes unreachable, because instances must have nodes to go to.
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
		return n.Health, "" // since this leader started, the agent has not reported whether it gets answers
	}
	return gossipHealth(n, live), "gossip: " + string(live.Gossip)
}

// gossipHealth returns the health that gossip shows for a node that isn't offline.
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

// writeOffline declares nodes offline, the longest silent first, as fast as the rate allows.
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

// offlineTokens returns how many nodes may go offline now, in millionths of a node. It is a token bucket that holds
// burst tokens and gains perMilli each millisecond. The tokens already taken are computed from the nodes' rows, so the
// rate also holds when leaders change.
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

// refill returns how many tokens the bucket gains in a time, at most twice what it holds.
func refill(d model.Duration, perMilli, burst int64) int64 {
	if int64(d) > 2*burst/perMilli {
		return 2 * burst
	}
	return int64(d) * perMilli
}
