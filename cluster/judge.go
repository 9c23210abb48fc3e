package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// judge finds out for the leader which nodes are silent. It asks the other servers about nodes that this server has not
// heard lately. A verdict is valid for one heartbeat interval, like the answers that it rests on.
type judge struct {
	s *Server

	mu       sync.Mutex
	verdicts map[model.NodeID]ruling
	change   chan struct{}                 // is closed and replaced when publish notices a change of Live's result
	shown    map[model.NodeID]fsm.Liveness // what publish last compared; ages are reduced to 0 or 1
}

// ruling is a verdict on one registration of a node.
type ruling struct {
	live  fsm.Liveness
	asked time.Time // when the other servers were asked
	epoch uint64    // of the registration
}

func newJudge(s *Server) *judge {
	return &judge{s: s, verdicts: map[model.NodeID]ruling{}, change: make(chan struct{})}
}

// run judges the nodes in rounds while this server leads. When ctx ends, it forgets the verdicts and returns.
func (j *judge) run(ctx context.Context, _ uint64) {
	defer j.forget()
	for ctx.Err() == nil {
		gossip, began := j.s.seen.pool.Changed(), time.Now()
		next := j.round(ctx)
		took := time.Since(began)
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-gossip:
			// Many members may change at once, for example when thousands of agents start. The pause lets one round see many of
			// these changes.
			pause(ctx, min(max(minLook, restShare*took), mostRest))
		}
		timer.Stop()
	}
}

func (j *judge) forget() {
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.verdicts)
}

// round asks the other servers about the nodes whose age has reached lateAfter, and publishes the result. It returns
// the time until the next round: at most one heartbeat interval, or half an interval while a node is late.
func (j *judge) round(ctx context.Context) (next time.Duration) {
	state := j.s.cfg.Machine.State()
	threshold := durationOf(state.Settings.OfflineAfter)
	interval := HeartbeatInterval(state.Settings.OfflineAfter)
	next = interval
	var late []nodeEpoch
	for id, n := range state.Nodes.All() {
		if n.Health == model.HealthOffline {
			continue
		}
		age := j.s.seen.hearts.Age(id).Since
		if doubt := lateAfter(threshold, interval); age < doubt {
			next = min(next, doubt-age)
			continue
		}
		late = append(late, nodeEpoch{id, n.Agent.Epoch})
		if next = min(next, interval/2); age < threshold {
			next = min(next, threshold-age)
		}
	}
	if len(late) > 0 {
		j.weigh(ctx, late, threshold, interval)
	}
	j.publish()
	return max(next, minLook)
}

// lateAfter returns the age from which the leader asks the other servers whether they hear a node. It is 2.5 heartbeat
// intervals, so that one lost heartbeat causes no question, but at most threshold. HOLD treats a node as missing after
// three intervals. By then, the leader must know whether only its own connection to the agents is cut.
func lateAfter(threshold, interval time.Duration) time.Duration { return min(threshold, 5*interval/2) }

// askLimit bounds the wait for the other servers' answers, so that a dead server does not delay the verdict.
const askLimit = time.Second

// minLook is the shortest time between two rounds.
const minLook = 20 * time.Millisecond

// Each round looks at every node, which takes CPU time. So after a change in gossip, the pause before the next round is
// restShare times as long as the last round took. It is at most mostRest, because the round may have spent its time
// waiting for answers.
const (
	restShare = 9
	mostRest  = 100 * time.Millisecond
)

// weigh asks the other servers twice. The first question only asks for ages. The second question is about the nodes
// that are silent by these ages. A server that agrees no longer renews the leases of these nodes. Only the second
// question can make a node silent, so no majority renews a node's lease once the node's offline entry may be written.
func (j *judge) weigh(ctx context.Context, nodes []nodeEpoch, threshold, interval time.Duration) {
	asked := time.Now()
	evidence := j.evidence(ctx, nodes, threshold, interval, false)
	var certain []nodeEpoch
	for _, n := range nodes {
		if evidence.Weigh(n.Node).Silent {
			certain = append(certain, n)
			continue
		}
		j.rule(n, evidence, asked)
	}
	if len(certain) == 0 {
		return
	}
	asked = time.Now()
	evidence = j.evidence(ctx, certain, threshold, interval, true)
	for _, n := range certain {
		j.rule(n, evidence, asked)
	}
}

// rule stores the verdict on a node. If the last verdict names another server that hears the node, and that server did
// not answer this time, rule keeps the last verdict for up to one heartbeat interval. Otherwise one late answer could
// cause a HOLD while the leader is cut off from its agents.
func (j *judge) rule(n nodeEpoch, e Evidence, asked time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	last := j.verdicts[n.Node]
	if hears := last.live.SeenBy; hears != "" && last.epoch == n.Epoch && !e.answered(hears) &&
		asked.Sub(last.asked) <= e.Interval {
		return
	}
	j.verdicts[n.Node] = ruling{live: e.Weigh(n.Node), asked: asked, epoch: n.Epoch}
}

// evidence asks all other servers at once, and adds what this server knows itself. It waits for the answers for at most
// half a heartbeat interval and at most askLimit. If giveUp is true, each server that agrees, including this one, no
// longer renews the leases of the nodes.
func (j *judge) evidence(ctx context.Context, nodes []nodeEpoch, threshold,
	interval time.Duration, giveUp bool) Evidence {
	s := j.s
	q := ageQuery{Leader: s.dir.id, Nodes: nodes, GiveUp: giveUp, Threshold: model.Duration(threshold.Milliseconds())}
	own := s.answerAges(q).opinion()
	fitness := s.fitness()
	if !own.Calm {
		fitness.Calm = 0
	}
	began := time.Now()
	opinions := s.askAges(ctx, q, min(interval/2, askLimit))
	for i := range opinions {
		opinions[i].Asked = time.Since(began)
	}
	e := Evidence{
		Threshold: threshold, Interval: interval, Fitness: fitness, Self: s.dir.id,
		Own: own.Ages, Opinions: opinions, Gossip: j.gossipOf(nodes),
	}
	for _, v := range s.voters() {
		e.Voters = append(e.Voters, model.ServerID(v.ID))
	}
	return e
}

// gossipOf returns what gossip says of the nodes, without those of revoked agents: such a machine still has the gossip
// key.
func (j *judge) gossipOf(nodes []nodeEpoch) map[model.NodeID]fsm.Gossip {
	state, all := j.s.cfg.Machine.State(), j.s.seen.pool.Liveness()
	out := make(map[model.NodeID]fsm.Gossip, len(nodes))
	for _, one := range nodes {
		if n, ok := state.Nodes.Get(one.Node); !ok || !state.AgentRevoked(n.Name) {
			out[one.Node] = all[one.Node]
		}
	}
	return out
}

// askAges sends q to all other servers at once. It returns the answers that arrive within the limit.
func (s *Server) askAges(ctx context.Context, q ageQuery, limit time.Duration) []Opinion {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var out []Opinion
	for _, server := range s.servers() {
		id := model.ServerID(server.ID)
		if id == s.dir.id {
			continue
		}
		wg.Go(func() {
			reply, err := askPeer[ageReply](ctx, s, s.addressOf(id), questionAges, q)
			if err != nil || reply.Server != id {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out = append(out, reply.opinion())
		})
	}
	wg.Wait()
	return out
}

func (s *Server) fitness() Fitness {
	f := Fitness{Uptime: s.seen.hearts.Uptime(), Calm: s.seen.stall.calm()}
	if r := s.state.leadership.Load(); r != nil {
		f.Led = time.Since(r.since)
	}
	return f
}

// calmEnough reports whether this server's ages can be trusted, because the process was neither paused nor short of CPU
// time lately. Lately means the last two heartbeat intervals, and at least the last second.
func (s *Server) calmEnough() bool {
	h := HeartbeatInterval(s.cfg.Machine.State().Settings.OfflineAfter)
	return s.seen.stall.calm() >= max(2*h, time.Second)
}

// Live returns the liveness of every node of the state. Only the leader's result contains verdicts. It does not block.
func (s *Server) Live() map[model.NodeID]fsm.Liveness { return s.seen.judge.live() }

// LiveOf returns what Live returns for one node, but does not look at other nodes. ok is false if the state does not
// have the node.
func (s *Server) LiveOf(id model.NodeID) (l fsm.Liveness, ok bool) { return s.seen.judge.liveOf(id) }

// LiveChanged returns a channel that is closed when the leader notices a change of Live's result, for example a
// verdict, a gossip state, an age above three heartbeat intervals, or facts that are newer than those in the state. To
// miss no change, call LiveChanged before Live.
func (s *Server) LiveChanged() <-chan struct{} {
	s.seen.judge.mu.Lock()
	defer s.seen.judge.mu.Unlock()
	return s.seen.judge.change
}

// Heard records that the node's agent made a request over mTLS. The request counts for the node's age like a heartbeat,
// but renews no lease. If gossip suspected the node, it no longer does.
func (s *Server) Heard(node model.NodeID) {
	s.seen.hearts.Heard(node)
	s.seen.pool.Heard(string(node))
}

// UseOf returns what a node's machine uses, as a server heard it last. ok is false if the agent did not say so.
func UseOf(s *Server, node model.NodeID) (use Use, ok bool) { return s.seen.hearts.Use(node) }

// livenessInput is what live and liveOf read once, before they look at single nodes.
type livenessInput struct {
	state               fsm.State
	gossip              map[model.NodeID]fsm.Gossip
	threshold, interval time.Duration
	paused              bool
	led                 time.Duration
	now                 time.Time
}

func (j *judge) livenessInput() livenessInput {
	state := j.s.cfg.Machine.State()
	return livenessInput{
		state: state, gossip: j.s.seen.pool.Liveness(), threshold: durationOf(state.Settings.OfflineAfter),
		interval: HeartbeatInterval(state.Settings.OfflineAfter), paused: !j.s.calmEnough(),
		led: j.s.fitness().Led, now: time.Now(),
	}
}

func (j *judge) live() map[model.NodeID]fsm.Liveness {
	g := j.livenessInput()
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make(map[model.NodeID]fsm.Liveness, g.state.Nodes.Len())
	j.s.seen.hearts.Signs(g.state.Nodes, func(n *fsm.Node, sign Sign) { out[n.ID] = j.livenessOf(&g, n, sign) })
	return out
}

func (j *judge) liveOf(id model.NodeID) (l fsm.Liveness, ok bool) {
	g := j.livenessInput()
	n, ok := g.state.Nodes.Get(id)
	if !ok {
		return l, false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.livenessOf(&g, n, j.s.seen.hearts.Sign(n)), true
}

// livenessOf returns the liveness of one node. sign is what Hearts knows of the node. j.mu is held.
func (j *judge) livenessOf(g *livenessInput, n *fsm.Node, sign Sign) fsm.Liveness {
	l := fsm.Liveness{
		Age: model.Duration(sign.Since.Milliseconds()), Gossip: g.gossip[n.ID], Unheard: !sign.Heard,
		Paused: g.paused, FactsGen: sign.Facts,
	}
	if l.Gossip == "" {
		l.Gossip = fsm.GossipUnknown
	}
	// Before this leader was elected, perhaps no server could answer agents. So agents first get time to reach a server.
	if limit := fsm.DeafAfter(g.state.Settings.OfflineAfter); sign.Deaf >= durationOf(limit) &&
		(g.led >= durationOf(limit) || n.Health == model.HealthUnreachable) {
		l.Deaf = model.Duration(sign.Deaf.Milliseconds())
	}
	// A verdict is valid for one heartbeat interval after the question, and only while this server does not hear the node.
	if v, ok := j.verdicts[n.ID]; ok && v.epoch == n.Agent.Epoch && sign.Since >= lateAfter(g.threshold, g.interval) &&
		g.now.Sub(v.asked) <= g.interval {
		l.Silent, l.SeenBy = v.live.Silent && sign.Since >= g.threshold, v.live.SeenBy
	}
	return l
}

// publish closes the channel of LiveChanged if Live's result has changed since the last call.
func (j *judge) publish() {
	state := j.s.cfg.Machine.State()
	now := j.live()
	late := model.Duration(3 * HeartbeatInterval(state.Settings.OfflineAfter).Milliseconds())
	for id, l := range now {
		l.Age, l.Deaf = min(l.Age/late, 1), min(l.Deaf, 1) // both always grow, so compare only whether they passed a limit
		if n, ok := state.Nodes.Get(id); ok && l.FactsGen <= n.FactsGen {
			l.FactsGen = 0 // the state already has these facts
		}
		now[id] = l
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	same := len(now) == len(j.shown)
	for id, l := range now {
		same = same && sameNews(j.shown[id], l)
	}
	j.shown = now
	if !same {
		close(j.change)
		j.change = make(chan struct{})
	}
}

// sameNews reports whether LiveChanged need not report the change from a to b. If b.FactsGen is 0, the state already
// has the node's facts, so a.FactsGen is ignored: the entry that wrote the facts has already woken those who wait.
func sameNews(a, b fsm.Liveness) bool {
	if b.FactsGen == 0 {
		a.FactsGen = 0
	}
	return a == b
}
