package reconcile

import (
	"fmt"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

const (
	calmFor      = 60 * model.Second // a hold ends after its reason has been gone for this long
	overrideFor  = 10 * model.Minute // an operator who ends a hold is believed for this long
	microToken   = 1_000_000         // one node going offline
	smallCluster = 10                // below it half of the nodes may be silent before a hold, from it on 34 %
	minBurst     = 2
)

// Interval is how often agents send heartbeats: a sixth of the time after which a node is offline, at least 300 ms and
// at most 10 s.
func Interval(offlineAfter model.Duration) model.Duration {
	return fsm.HeartbeatInterval(offlineAfter)
}

// census is what the mass guard counts.
type census struct {
	nodes  int // all of them
	judged int // those that are meant to work
	// of these offline, or silent for more than three intervals, or degraded by their own agents' word
	out       int
	sick      int         // of these the last
	unheard   int         // neither out nor ever heard by this leader: it can't know yet
	back      int         // of those that are out, how many are heard again and have not registered yet
	domain    string      // a failure domain that is out as a whole while others are out too; empty if there is none
	candidate []*fsm.Node // those that every rule but the mass guard calls offline, the longest silent first
	deaf      int         // of the judged ones, how many hear no answers
	gossip    []*fsm.Node // those whose health gossip, or what they hear, shows differently
}

// watchNodes writes what the evidence says of each node, guarded against the mistake that costs most: to take a broken
// network for broken nodes.
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

func (p *pass) count() census {
	var c census
	interval := Interval(p.in.State.Settings.OfflineAfter)
	for id, n := range p.state().Nodes.All() {
		c.nodes++
		live, known := p.in.Live[id]
		if known && n.Health != model.HealthOffline {
			if live.Age > 3*interval { // evidence that something goes on; whatever is new in it wakes the loop as well
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
	if c.out > 2 { // two of a whole domain, and another one
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

// out is isOut with what is known of the node.
func (p *pass) out(n *fsm.Node, live fsm.Liveness, known bool) bool {
	return n.Health == model.HealthOffline || known && live.SeenBy == "" && p.late(live)
}

// domainOut is a failure domain that is out as a whole while others are out too; empty if there is none.
func (p *pass) domainOut(c *census) (out string) {
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

// late reports whether a node's heartbeats are missing. Of one that this leader has not heard at all it says so only
// when it could judge it: after a restart of all servers every node is unheard for a moment, and none is broken. After
// a pause of its own all nodes seem silent at once, and it says so of none.
func (p *pass) late(live fsm.Liveness) bool {
	if live.Paused {
		return false // nobody is declared offline then either
	}
	if live.Unheard {
		return !p.awaited(live) && live.Age >= max(p.in.State.Settings.OfflineAfter, fsm.UnheardFor)
	}
	return live.Age > 3*Interval(p.in.State.Settings.OfflineAfter)
}

// awaitedMost bounds for how long a leader waits for nodes that it has never heard while a restore is not confirmed: a
// person may be long in confirming it.
const awaitedMost = 15 * model.Minute

// awaited reports whether a node may not have found the servers yet, as after a recovery into new ones: it has not been
// heard at all, and the restored state is not confirmed, or was so recently. Its silence says nothing.
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

// judged reports whether a node's silence would be news: not if it was taken out of service, emptied, or confirmed
// dead.
func judged(n *fsm.Node) bool {
	emptied := n.Intent == model.IntentDraining && n.Placed.Instances == 0
	return n.Intent != model.IntentDisabled && !emptied && !n.Return.ConfirmedDead
}

// limit is the number of silent or sick nodes above which nobody is believed to be dead, times 100: max(2, 34 %), 50 %
// in a small cluster.
func (c *census) limit() int {
	percent := 34
	if c.judged < smallCluster {
		percent = 50
	}
	return max(200, percent*c.judged)
}

func (c *census) tooMany() string {
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

// hold begins a hold before the first of too many silent nodes is written, and ends it when less than half the limit
// has been silent for a minute. Since when that is so stands in the state: leaders may change more often. A node that
// this leader has not heard yet may be silent as well.
func (p *pass) hold(c *census) {
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
	if calm && h.Calm != 0 && p.past(max(h.Calm, h.Since).Add(calmFor)) {
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

// judgeHealth makes a node degraded while gossip suspects it, and unreachable while its agent gets no answers; online
// again at once when neither is so. That alone never evicts anything. Where too many hear nothing the servers are
// broken rather than the nodes, and none is made unreachable: something must be left to place on.
func (p *pass) judgeHealth(n *fsm.Node, c *census) {
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

// healthOf is the health that the evidence shows of a node that isn't offline, and why.
func healthOf(n *fsm.Node, live fsm.Liveness) (health model.Health, why string) {
	switch {
	case live.Deaf > 0:
		return model.HealthUnreachable, fmt.Sprintf("no server has answered its agent for %s", live.Deaf)
	case n.Health == model.HealthUnreachable && live.Unheard:
		return n.Health, "" // it has not said so to this leader yet
	}
	return gossipHealth(n, live), "gossip: " + string(live.Gossip)
}

// gossipHealth is the health that gossip sees in a node that isn't offline.
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

// writeOffline declares nodes offline, the longest silent first, no more than the rate allows.
func (p *pass) writeOffline(c *census) {
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

// offlineTokens is how many nodes may go offline now, in millionths: a bucket of burst that fills by perMilli each
// millisecond. What was taken from it is read from the nodes, so that it holds across leaders.
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

// refill is what flows into the bucket in a time, at most what it holds.
func refill(d model.Duration, perMilli, burst int64) int64 {
	if int64(d) > 2*burst/perMilli {
		return 2 * burst
	}
	return int64(d) * perMilli
}
