package cluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/draw"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

var testNodeKey = []byte("0123456789abcdef0123456789abcdef")

// threeWithAgents starts three servers with offline_after 2 s, and the given number of agents, n1, n2 and so on, that
// send heartbeats. Each function in stop stops one of the agents.
func threeWithAgents(t *testing.T, agents int) (r *rig, stop []func()) {
	t.Helper()
	r = newRig(t)
	r.threeServersRunning(func(c *Config) {
		c.Settings = model.DefaultSettings()
		c.Settings.OfflineAfter = 2 * model.Second
	})
	for i := 1; i <= agents; i++ {
		stop = append(stop, r.agent(i))
	}
	eventually(t, 10*time.Second, "every server hears every agent", func() bool { return r.allHeard(agents) })
	return r, stop
}

// allHeard reports whether every running server has heard all of the given number of agents, n1, n2 and so on.
func (r *rig) allHeard(agents int) bool {
	for _, s := range r.running() {
		for i := 1; i <= agents; i++ {
			if !s.seen.hearts.Age(nodeID(i)).Heard {
				return false
			}
		}
	}
	return true
}

func nodeID(i int) model.NodeID { return model.NodeID(fmt.Sprintf("n%d", i)) }

func agentHost(i int) string { return fmt.Sprintf("10.0.1.%d", i) }

// epoch returns the epoch of a node's last registration.
func (r *rig) epoch(id model.NodeID) uint64 {
	r.t.Helper()
	n, _ := r.leader(5 * time.Second).machine.State().Nodes.Get(id)
	return n.Agent.Epoch
}

// agent registers node i and sends its heartbeats until stop is called. Then the agent stops without notice, as in a
// crash.
func (r *rig) agent(i int) (stop func()) {
	r.t.Helper()
	r.mustRegister(string(nodeID(i)))
	pool, stopPool := startPool(r.t, r.net, string(nodeID(i)), agentHost(i), func(c *PoolConfig) {
		c.Join = []string{host(1) + ":7642", host(2) + ":7642", host(3) + ":7642"}
	})
	beater := NewBeater(BeaterConfig{Node: nodeID(i), Pool: pool})
	beater.Register(testNodeKey, r.epoch(nodeID(i)), HeartbeatInterval(2*model.Second))
	r.beaters[nodeID(i)] = beater
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { beater.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		stopPool()
	})
	r.t.Cleanup(stop)
	return stop
}

const (
	testThreshold = 2 * time.Second
	testBeat      = testThreshold / 6
)

// silentWithin waits until the leader judges a node silent, and returns how long that took. It fails the test after
// limit.
func (r *rig) silentWithin(limit time.Duration, id model.NodeID) time.Duration {
	r.t.Helper()
	began := time.Now()
	eventually(r.t, limit, string(id)+" silent", func() bool { return r.leader(20 * time.Second).Live()[id].Silent })
	return time.Since(began)
}

// L4: A dead node is judged silent at most offline_after plus two heartbeat intervals plus 2 s after its death, but not
// before offline_after has passed since its last heartbeat.
func TestDeadNodeIsSilentInTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r, stop := threeWithAgents(t, 3)
		time.Sleep(10 * time.Second)
		for id, l := range r.leader(time.Second).Live() {
			if l.Silent || l.Age > model.Duration(2*testBeat.Milliseconds()) || l.Gossip != fsm.GossipAlive {
				t.Errorf("%s while all is well: %+v", id, l)
			}
		}
		changed := r.leader(time.Second).LiveChanged()
		stop[0]()
		took := r.silentWithin(testThreshold+2*testBeat+2*time.Second, "n1")
		if took < testThreshold-testBeat {
			t.Errorf("silent after %s, before the threshold", took)
		}
		select {
		case <-changed:
		default:
			t.Error("nobody was told of the change")
		}
		for _, id := range []model.NodeID{"n2", "n3"} {
			if l := r.leader(time.Second).Live()[id]; l.Silent {
				t.Errorf("%s: %+v", id, l)
			}
		}
	})
}

// The leader hears no agent, and the other servers hear all agents. No node is judged silent.
func TestLeaderCutOffFromAgents(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r, _ := threeWithAgents(t, 4)
		leader := r.leader(time.Second)
		for i := 1; i <= 4; i++ {
			r.net.Isolate(leader.host, agentHost(i))
		}
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			for id, l := range leader.Live() {
				if l.Silent {
					t.Fatalf("%s is silent for the leader although others hear it: %+v", id, l)
				}
			}
		}
		for id, l := range leader.Live() {
			if l.Age < 30*model.Second || l.SeenBy == "" || l.SeenBy == leader.ID() {
				t.Errorf("%s: %+v; want an old age, and a server that sees it", id, l)
			}
		}
	})
}

// An agent is cut off for a minute. So the gossip of the servers shows the agent as dead, and the gossip of the agent
// shows the servers as dead. When the network works again, the leader hears the agent within a second. Gossip soon
// shows the agent as alive, before the next regular attempt to rejoin.
func TestAgentReturnsAfterACut(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r, _ := threeWithAgents(t, 2)
		time.Sleep(5 * time.Second)
		for _, s := range r.all() {
			r.net.Isolate(agentHost(1), s.host)
		}
		r.net.Isolate(agentHost(1), agentHost(2))
		r.silentWithin(testThreshold+2*testBeat+2*time.Second, "n1")
		time.Sleep(time.Minute)
		r.net.Heal()
		began := time.Now()
		leader := r.leader(time.Second)
		eventually(t, 10*time.Second, "heard again", func() bool {
			return leader.Live()["n1"].Age < model.Duration(2*testBeat.Milliseconds())
		})
		if took := time.Since(began); took > time.Second {
			t.Errorf("heard after %s", took)
		}
		eventually(t, 10*time.Second, "alive again", func() bool { return leader.Live()["n1"].Gossip == fsm.GossipAlive })
		for range 100 {
			time.Sleep(50 * time.Millisecond)
			if l := leader.Live()["n1"]; l.Silent || l.Age > model.Duration(3*testBeat.Milliseconds()) {
				t.Fatalf("%+v after its return", l)
			}
		}
	})
}

// All servers restart so fast that the agents' gossip doesn't notice. After that, the servers know no agent by gossip,
// but each heartbeat has the address for its answer. So the servers answer all agents at once, and no lease expires.
func TestAgentsAreHeardAfterARestartOfAllServers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r, _ := threeWithAgents(t, 2)
		time.Sleep(5 * time.Second)
		for i := 1; i <= 3; i++ {
			r.isolate(host(i))
			for n := 1; n <= 2; n++ {
				r.net.Isolate(host(i), agentHost(n))
			}
		}
		for _, s := range r.running() {
			s.stop()
		}
		r.net.Heal()
		for i := 1; i <= 3; i++ {
			r.start(i, nil)
		}
		r.leader(20 * time.Second)
		eventually(t, 2*testBeat, "every server hears every agent", func() bool { return r.allHeard(2) })
		for id, beater := range r.beaters {
			if left := time.Until(beater.LeaseUntil(testThreshold)); left < testThreshold/2 {
				t.Errorf("the lease of %s has %s left", id, left)
			}
		}
		eventually(t, 5*time.Second, "the agents are members again", func() bool {
			m, ok := r.leader(time.Second).Pool().Member("n2")
			return ok && m.State == fsm.GossipAlive
		})
	})
}

// If a server has answered that it hears a node, the leader relies on that answer until the server's next one, but for
// at most one heartbeat interval. The next answer is used at once.
func TestLateAnswers(t *testing.T) {
	node, began := nodeEpoch{"n1", 1}, time.Now()
	evidence := func(opinions ...Opinion) Evidence {
		return Evidence{
			Threshold: testThreshold, Interval: testBeat, Self: "s1", Voters: []model.ServerID{"s1", "s2", "s3"},
			Fitness: Fitness{time.Hour, time.Hour, time.Hour}, Own: map[model.NodeID]Age{"n1": {testThreshold, true}},
			Opinions: opinions,
		}
	}
	says := func(server model.ServerID, since time.Duration) Opinion {
		return Opinion{Server: server, Calm: true, Ages: map[model.NodeID]Age{"n1": {since, true}}}
	}
	for _, tt := range []struct {
		name   string
		after  time.Duration
		next   Evidence
		seenBy model.ServerID
		silent bool
	}{
		{"late", testBeat / 2, evidence(says("s3", testThreshold)), "s2", false},
		{"late for a heartbeat", testBeat + 1, evidence(says("s3", testThreshold)), "", true},
		{"it hears nothing any more", testBeat / 2, evidence(says("s2", testThreshold), says("s3", testThreshold)), "", true},
		{"it still hears it", testBeat / 2, evidence(says("s2", 1)), "s2", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := newJudge(nil)
			j.rule(node, evidence(says("s2", 1)), began)
			j.rule(node, tt.next, began.Add(tt.after))
			if live := j.verdicts["n1"].live; live.SeenBy != tt.seenBy || live.Silent != tt.silent {
				t.Errorf("seen by %q, silent %t; want %q, %t", live.SeenBy, live.Silent, tt.seenBy, tt.silent)
			}
		})
	}
}

// If one of three servers is dead, the other two are a majority, and a dead node is still judged silent.
func TestDeadNodeWithOneServerDead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r, stop := threeWithAgents(t, 3)
		for _, s := range r.running() {
			if s != r.leader(time.Second) {
				s.crash()
				break
			}
		}
		time.Sleep(10 * time.Second)
		stop[0]()
		r.silentWithin(testThreshold+2*testBeat+2*time.Second, "n1")
	})
}

// The leader crashes right after a node has died. The next leader judges the node silent in time, because every server
// hears every agent.
func TestDeadNodeAcrossAFailover(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r, stop := threeWithAgents(t, 3)
		time.Sleep(10 * time.Second)
		stop[0]()
		r.leader(time.Second).crash()
		next := r.leader(20 * time.Second)
		r.silentWithin(testThreshold+2*testBeat+2*time.Second, "n1")
		if l := next.Live()["n2"]; l.Silent {
			t.Errorf("n2: %+v", l)
		}
	})
}

// If two of three voters have crashed, there is no leader, and no node is judged silent.
func TestNobodyIsSilentWithoutAMajority(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r, stop := threeWithAgents(t, 2)
		leader := r.leader(time.Second)
		for _, s := range r.running() {
			if s != leader {
				s.crash()
			}
		}
		for _, fn := range stop {
			fn()
		}
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			for id, l := range leader.Live() {
				if l.Silent {
					t.Fatalf("%s silent at a server without a majority", id)
				}
			}
		}
	})
}

// If gossip sees a node alive but its heartbeats are missing, the node is judged silent only while every voter answers
// and agrees.
func TestGossipAliveNeedsAllVoters(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r, stop := threeWithAgents(t, 2)
		time.Sleep(5 * time.Second)
		stop[0]()
		quiet, _ := startPool(t, r.net, "n1", agentHost(1), func(c *PoolConfig) { // gossip goes on without heartbeats
			c.Meta.Role, c.Join = pki.RoleAgent, []string{host(1) + ":7642"}
		})
		eventually(t, 10*time.Second, "its gossip lives", allAlive(quiet, 5))
		leader := r.leader(time.Second)
		r.silentWithin(10*time.Second, "n1")
		if got := leader.Live()["n1"].Gossip; got != fsm.GossipAlive {
			t.Fatalf("gossip %s", got)
		}
		for _, s := range r.running() {
			if s != leader {
				s.crash()
				break
			}
		}
		time.Sleep(2 * time.Second)
		if l := r.leader(20 * time.Second).Live()["n1"]; l.Silent {
			t.Errorf("gossip sees it and a voter does not answer: %+v", l)
		}
	})
}

// The leader crashes after 50 idle minutes. The next leader's cluster time is at most two seconds behind.
func TestClusterTimeAcrossAnIdleFailover(t *testing.T) {
	idle := draw.Idle(50 * time.Minute)
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		first := r.leader(time.Second)
		r.mustRegister("n1")
		began, then := time.Now(), first.Now()
		time.Sleep(idle)
		first.crash()
		second := r.leader(20 * time.Second)
		elapsed := model.Time(time.Since(began).Milliseconds())
		if got := second.Now() - then; got < elapsed-2000 || got > elapsed+10 {
			t.Errorf("%d ms of cluster time in %d ms", got, elapsed)
		}
		r.mustRegister("n2")
		if now := second.machine.State().Now; now < then+elapsed-2000 {
			t.Errorf("the state's time is %d, before was %d", now, then)
		}
		// While no server runs, cluster time stops. After the restart it continues near where it stopped.
		last := second.Now()
		for _, s := range r.running() {
			s.stop()
		}
		time.Sleep(time.Hour)
		r.net.Heal()
		for i := 1; i <= 3; i++ {
			r.start(i, nil)
		}
		third := r.leader(20 * time.Second)
		if got := third.Now(); got < last-5000 || got > last+60_000 {
			t.Errorf("after an hour without servers the time is %d, before it was %d", got, last)
		}
	})
}

// L3: a settled cluster writes nothing.
func TestSettledClusterWritesNothing(t *testing.T) {
	idle := draw.Idle(10 * time.Minute)
	inBubble(t, func(t *testing.T) {
		r, _ := threeWithAgents(t, 2)
		time.Sleep(time.Minute)
		leader := r.leader(time.Second)
		before, ballast := leader.raft.LastIndex(), leader.Status().Room
		time.Sleep(idle)
		if after := leader.raft.LastIndex(); after != before {
			t.Errorf("%d entries in %v without work", after-before, idle)
		}
		if leader != r.leader(time.Second) || ballast != RoomEnough {
			t.Error("the leader changed")
		}
	})
}

// Concurrent reads share Barriers.
func TestReadBarriersAreShared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		leader := r.leader(time.Second)
		time.Sleep(5 * time.Second)
		before := leader.raft.LastIndex()
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() {
				if err := leader.ReadBarrier(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if used := leader.raft.LastIndex() - before; used > 50 {
			t.Errorf("500 reads wrote %d entries", used)
		}
		// A leader that is cut off confirms no read.
		r.isolate(leader.host)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := leader.ReadBarrier(ctx); err == nil {
			t.Error("a leader without a majority confirmed a read")
		}
	})
}
