package cluster

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/testbed/memnet"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

func TestHeartbeatInterval(t *testing.T) {
	for offlineAfter, want := range map[model.Duration]time.Duration{
		60 * model.Second: 10 * time.Second,
		2 * model.Second:  333333333,
		model.Second:      300 * time.Millisecond,
		model.Hour:        10 * time.Second,
	} {
		if got := HeartbeatInterval(offlineAfter); got != want {
			t.Errorf("offline after %s: every %s, want %s", offlineAfter, got, want)
		}
	}
}

var threeVoters = electorate{Index: 1, Voters: []model.ServerID{"s1", "s2", "s3"}}

// oneNode is the Hearts of a server with one node, and the answers that the Hearts sent.
type oneNode struct {
	*Hearts
	key     []byte
	epoch   uint64
	offline bool
	sent    [][]byte
}

func newOneNode(t *testing.T) *oneNode {
	t.Helper()
	o := &oneNode{key: bytes.Repeat([]byte{3}, 32), epoch: 1}
	var err error
	o.Hearts, err = NewHearts(HeartsConfig{
		Self:    "s1",
		NodeKey: func(n nodeEpoch) ([]byte, bool) { return o.key, n == nodeEpoch{"n1", o.epoch} },
		Offline: func(nodeEpoch) bool { return o.offline },
		Answer:  func(_, _ string, msg []byte) error { o.sent = append(o.sent, msg); return nil },
		Alive:   func(string) {},
		Voters:  func() electorate { return threeVoters },
		Logger:  hclog.NewNullLogger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *oneNode) beat(t *testing.T, key []byte, edit func(*beat)) []byte {
	t.Helper()
	b := beat{To: "s1", Node: "n1", Epoch: o.epoch, Seq: 1, Echo: o.echo}
	if edit != nil {
		edit(&b)
	}
	msg, err := newCodec().seal(kindBeat, b, key)
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func TestHeartsTakeOnlyWhatIsSignedAndNew(t *testing.T) {
	wrongKey := bytes.Repeat([]byte{4}, 32)
	for _, c := range []struct {
		name  string
		key   []byte
		edit  func(*beat)
		heard bool
	}{
		{"a good one", nil, nil, true},
		{"signed with another key", wrongKey, nil, false},
		{"of an unknown node", nil, func(b *beat) { b.Node = "n2" }, false},
		{"for another server", nil, func(b *beat) { b.To = "s2" }, false},
		{"of an older epoch", nil, func(b *beat) { b.Epoch = 0 }, false},
		{"of an epoch that never was", nil, func(b *beat) { b.Epoch = 9 }, false},
		{"without this process's number", nil, func(b *beat) { b.Echo = 0 }, false},
	} {
		o := newOneNode(t)
		key := c.key
		if key == nil {
			key = o.key
		}
		o.Receive(o.beat(t, key, c.edit))
		if got := o.Age("n1").Heard; got != c.heard {
			t.Errorf("%s: heard %v, want %v", c.name, got, c.heard)
		}
	}
}

func TestHeartsRefuseReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOneNode(t)
		first, second := o.beat(t, o.key, nil), o.beat(t, o.key, func(b *beat) { b.Seq = 2 })
		o.Receive(first)
		o.Receive(second)
		time.Sleep(time.Minute)
		o.Receive(first)
		o.Receive(second)
		if age := o.Age("n1").Since; age != time.Minute {
			t.Errorf("age %s after replays, want 1m0s", age)
		}
		if len(o.sent) != 2 {
			t.Errorf("%d answers, want one for each of the two beats", len(o.sent))
		}
		// A server that has just started knows no sequence number of the node. It refuses replays because they lack the
		// random number that the new process chose.
		fresh := newOneNode(t)
		fresh.Receive(second)
		if fresh.Age("n1").Heard {
			t.Error("a fresh server took a recorded heartbeat")
		}
		// The next registration begins a new epoch with a new sequence.
		o.epoch = 2
		o.Receive(o.beat(t, o.key, func(b *beat) { b.Seq = 1 }))
		if age := o.Age("n1").Since; age != 0 {
			t.Errorf("age %s after the first beat of a new epoch", age)
		}
	})
}

func TestHeartsBeatsOfAnyBytesAreHarmless(t *testing.T) {
	o := newOneNode(t)
	good := o.beat(t, o.key, nil)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x41
		o.Receive(bad)
		o.Receive(good[:i])
	}
	if o.Age("n1").Heard {
		t.Error("a damaged heartbeat was taken")
	}
}

func FuzzHeartbeat(f *testing.F) {
	c := newCodec()
	key := []byte("key")
	for kind, body := range map[byte]any{kindBeat: beat{Node: "n"}, kindAnswer: beatAnswer{From: "s"}} {
		msg, err := c.seal(kind, body, key)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(msg)
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		other := func() ([]byte, bool) { return []byte("another key"), true }
		if c.open(msg, kindBeat, new(beat), other) == nil || c.open(msg, kindAnswer, new(beatAnswer), other) == nil {
			t.Error("taken without the key")
		}
	})
}

func TestHeartsAgesCountFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOneNode(t)
		time.Sleep(30 * time.Second)
		if got := o.Age("n1"); got != (Age{Since: 30 * time.Second}) {
			t.Errorf("never heard: %+v", got)
		}
		o.Heard("n1")
		time.Sleep(time.Second)
		if got := o.Age("n1"); got != (Age{Since: time.Second, Heard: true}) {
			t.Errorf("heard by a request: %+v", got)
		}
		o.Retain(func(model.NodeID) bool { return false })
		if o.Age("n1").Heard {
			t.Error("a forgotten node is remembered")
		}
	})
}

// A server that has agreed that an epoch is offline never renews leases of that epoch again. It renews leases of the
// next epoch.
func TestHeartsGiveUpAnEpoch(t *testing.T) {
	o := newOneNode(t)
	o.GiveUp("n1", 1)
	if v := o.take(beat{To: "s1", Node: "n1", Epoch: 1, Seq: 1, Echo: o.echo}, o.key); v != verdictGivenUp {
		t.Errorf("verdict %d, want given up", v)
	}
	if !o.Age("n1").Heard {
		t.Error("it must still be heard: it vetoes")
	}
	if v := o.take(beat{To: "s1", Node: "n1", Epoch: 2, Seq: 1, Echo: o.echo}, []byte("its key")); v != verdictHeard {
		t.Errorf("verdict %d for the next epoch, want heard", v)
	}
}

// Two registrations may have the same epoch, but never the same key. The first beats of the second registration must
// not be mistaken for replays.
func TestHeartsOfAnEpochThatComesAgain(t *testing.T) {
	o := newOneNode(t)
	for seq := uint64(1); seq <= 3; seq++ {
		if v := o.take(beat{To: "s1", Node: "n1", Epoch: 5, Seq: seq, Echo: o.echo, Facts: 500}, o.key); v != verdictHeard {
			t.Fatalf("verdict %d, want heard", v)
		}
	}
	next := bytes.Repeat([]byte{9}, 32)
	if v := o.take(beat{To: "s1", Node: "n1", Epoch: 5, Seq: 1, Echo: o.echo, Facts: 2}, next); v != verdictHeard {
		t.Errorf("the first beat under another key: verdict %d, want heard", v)
	}
	if v := o.take(beat{To: "s1", Node: "n1", Epoch: 5, Seq: 1, Echo: o.echo, Facts: 2}, next); v != 0 {
		t.Errorf("the same beat again: verdict %d, want none", v)
	}
	if sign := o.Sign(&fsm.Node{ID: "n1", Agent: model.AgentInfo{Epoch: 5, Key: next}}); sign.Facts != 2 {
		t.Errorf("facts of generation %d count as heard, want 2", sign.Facts)
	}
}

// If the state says that a node's epoch is offline, a server renews no lease of that epoch, even if the server has
// restarted since it agreed that the epoch is offline.
func TestHeartsOfAnOfflineNode(t *testing.T) {
	o := newOneNode(t)
	o.offline = true
	if v := o.take(beat{To: "s1", Node: "n1", Epoch: 1, Seq: 1, Echo: o.echo}, o.key); v != verdictGivenUp {
		t.Errorf("verdict %d, want given up", v)
	}
}

// heartbeatRig has three servers that only answer heartbeats, and one agent, over gossip in memory.
type heartbeatRig struct {
	net    *memnet.Net
	hearts map[string]*Hearts
	agent  *Beater
}

func newHeartbeatRig(t *testing.T, key []byte) *heartbeatRig {
	t.Helper()
	r := &heartbeatRig{net: memnet.New(), hearts: map[string]*Hearts{}}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	for i := range 3 {
		name := fmt.Sprintf("s%d", i+1)
		pool, _ := startPool(t, r.net, name, "10.0.0."+fmt.Sprint(i+1), func(c *PoolConfig) {
			c.Meta = Meta{Role: pki.RoleServer}
		})
		h, err := NewHearts(HeartsConfig{
			Self: model.ServerID(name), NodeKey: func(nodeEpoch) ([]byte, bool) { return key, true },
			Offline: func(nodeEpoch) bool { return false },
			Answer:  pool.Answer, Alive: pool.Heard, Voters: func() electorate {
				return threeVoters
			}, Logger: hclog.NewNullLogger(),
		})
		if err != nil {
			t.Fatal(err)
		}
		r.hearts[name] = h
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case msg := <-pool.Receive():
					h.Receive(msg)
				}
			}
		})
	}
	pool, _ := startPool(t, r.net, "n1", "10.0.0.11", nil)
	r.agent = NewBeater(BeaterConfig{Node: "n1", Pool: pool})
	wg.Go(func() { r.agent.Run(ctx) })
	return r
}

func TestHeartbeatsOverGossip(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		key := bytes.Repeat([]byte{5}, 32)
		r := newHeartbeatRig(t, key)
		time.Sleep(5 * time.Second)
		if r.hearts["s1"].Age("n1").Heard {
			t.Fatal("heard before it registered")
		}
		if !r.agent.LeaseUntil(time.Second).IsZero() {
			t.Fatal("a lease before any answer")
		}
		const every = 333 * time.Millisecond
		r.agent.Register(key, 1, every)
		r.agent.SetFacts(1, 4)
		r.agent.SetFacts(7, 9) // no effect, because 7 is not the registered epoch
		eventually(t, 2*time.Second, "every server hears it", func() bool {
			return r.hearts["s1"].Age("n1").Heard && r.hearts["s2"].Age("n1").Heard && r.hearts["s3"].Age("n1").Heard
		})
		for range 100 {
			time.Sleep(50 * time.Millisecond)
			for name, h := range r.hearts {
				if age := h.Age("n1").Since; age > every+50*time.Millisecond {
					t.Fatalf("age at %s is %s", name, age)
				}
			}
			if left := time.Until(r.agent.LeaseUntil(2 * time.Second)); left < 2*time.Second-2*every {
				t.Fatalf("lease of 2 s has %s left", left)
			}
		}
		if got := factsOf(r.hearts["s2"], 1); got != 4 {
			t.Errorf("facts generation %d, want 4", got)
		}
		if got := factsOf(r.hearts["s2"], 2); got != 0 {
			t.Errorf("facts generation %d of an epoch that nobody heard of", got)
		}
		// The lease is renewed while one server is unreachable, but not while two servers are.
		r.net.Isolate("10.0.0.11", "10.0.0.1")
		time.Sleep(5 * time.Second)
		if time.Until(r.agent.LeaseUntil(2*time.Second)) < time.Second {
			t.Error("the lease needs only two of three servers")
		}
		r.net.Isolate("10.0.0.11", "10.0.0.2")
		time.Sleep(5 * time.Second)
		if left := time.Until(r.agent.LeaseUntil(2 * time.Second)); left > 0 {
			t.Errorf("cut off from two of three servers for 5 s, the lease has %s left", left)
		}
	})
}

// An attacker who has the gossip key but not the node's key is not heard and gets no lease.
func TestHeartbeatsWithTheGossipKeyOnly(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newHeartbeatRig(t, bytes.Repeat([]byte{5}, 32))
		r.agent.Register(bytes.Repeat([]byte{6}, 32), 1, time.Second)
		time.Sleep(20 * time.Second)
		for name, h := range r.hearts {
			if h.Age("n1").Heard {
				t.Errorf("%s took a heartbeat signed with another key", name)
			}
		}
		if !r.agent.LeaseUntil(time.Hour).IsZero() {
			t.Error("a lease without a valid answer")
		}
	})
}

func TestBeaterRegistersAgainWhenGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		key := bytes.Repeat([]byte{5}, 32)
		r := newHeartbeatRig(t, key)
		r.agent.Register(key, 1, 300*time.Millisecond)
		eventually(t, 10*time.Second, "lease", func() bool { return !r.agent.LeaseUntil(time.Second).IsZero() })
		for _, h := range r.hearts {
			h.GiveUp("n1", 1)
		}
		select {
		case <-r.agent.GivenUp():
		case <-time.After(5 * time.Second):
			t.Fatal("nobody told the agent")
		}
		time.Sleep(2 * time.Second)
		if left := time.Until(r.agent.LeaseUntil(time.Second)); left > 0 {
			t.Errorf("the lease of a given up epoch has %s left", left)
		}
	})
}

func TestStallWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStallWatch(3 * time.Second) // ticks every stallTick, and a tick may be up to 3 s late
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { s.run(ctx) })
		time.Sleep(time.Minute)
		if s.calm() != time.Minute {
			t.Errorf("calm for %s after a minute", s.calm())
		}
		cancel()
		wg.Wait()
		time.Sleep(10 * time.Second) // without ticks, as when the process is paused
		if s.calm() != 0 {
			t.Errorf("calm for %s right after a pause", s.calm())
		}
		s.tick(time.Now())
		time.Sleep(time.Second)
		if s.calm() != time.Second {
			t.Errorf("calm for %s, a second after a pause", s.calm())
		}
	})
}

func TestClockNeverGoesBackAndGoesOnByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		c.hear(5000)
		time.Sleep(3 * time.Second)
		if c.now() != 8000 {
			t.Errorf("now %d, want 8000", c.now())
		}
		c.hear(6000) // an entry proposed a while ago
		if c.now() != 8000 {
			t.Errorf("went back to %d", c.now())
		}
		c.hear(20000)
		time.Sleep(1500 * time.Microsecond)
		if c.now() != 20001 {
			t.Errorf("now %d, want 20001", c.now())
		}
	})
}

// factsOf returns the generation of facts of the node n1 that h knows for an epoch.
func factsOf(h *Hearts, epoch uint64) (facts uint64) {
	state := fsm.NewState()
	for range epoch {
		register := &fsm.NodeRegister{ID: "n1", Name: "n1",
			Agent: model.AgentInfo{BootID: "b", Key: bytes.Repeat([]byte{5}, 32)}}
		state, _ = state.Apply(state.Index+1, 1, fsm.Entry{Format: 1, Groups: [][]fsm.Command{{register}}})
	}
	h.Signs(state.Nodes, func(_ *fsm.Node, sign Sign) { facts = sign.Facts })
	return facts
}
