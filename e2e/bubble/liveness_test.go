package bubble

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// L3: a settled cluster writes nothing for ten minutes, while gossip, heartbeats, ticks and long polls continue. Raft
// itself writes nothing either.
func TestSettledClusterWritesNothing(t *testing.T) {
	inBubble(t, options{}, func(t *testing.T, w *world) {
		w.run("web", group("http", 8, 64*mib))
		time.Sleep(10 * time.Second)
		before := w.leader().cluster.Status().LastIndex
		time.Sleep(10 * time.Minute)
		for _, s := range w.servers {
			if got := s.cluster.Status(); got.LastIndex != before || got.Term != w.leader().cluster.Term() {
				t.Errorf("%s: last index %d, was %d", s.name, got.LastIndex, before)
			}
		}
		for _, e := range w.history.since(before) {
			t.Errorf("entry %d: %s", e.index, kinds(e.Entry))
		}
	})
}

// detection is the limit of L4 with an offline_after of 2 s: offline_after, two heartbeats and 2 s.
const detection = 2*time.Second + 2*heartbeat + 2*time.Second

// L4: a machine that loses power at a random moment is marked offline in time (see detection), and the leader's next
// decision replaces its instances.
func TestDeadNodeIsReplaced(t *testing.T) {
	var offline, replaced []time.Duration
	seeds := 10
	eachRandom(t, seeds, func(t *testing.T, random *rand.Rand) {
		inBubble(t, options{}, func(t *testing.T, w *world) {
			id := w.run("web", group("http", 8, 64*mib))
			time.Sleep(time.Duration(random.IntN(5000)) * time.Millisecond)
			n := w.nodes[random.IntN(len(w.nodes))]
			had := len(n.placed())
			index := w.state().Index
			n.powerOff()
			off := time.Now()
			w.eventually(detection, n.name+" is offline", func() bool { return n.row().Health == model.HealthOffline })
			offline = append(offline, time.Since(off))
			w.ready(id, 8, 10*time.Second)
			replaced = append(replaced, time.Since(off))
			nextDecision(t, w, index, had)
			n.restart()
			w.eventually(30*time.Second, n.name+" is back and may be used", func() bool {
				st := w.state()
				return st.Eligible(n.row()) == nil
			})
			if n.programs.running() != 0 {
				t.Errorf("%d programs run on the machine that was off", n.programs.running())
			}
		})
	})
	slices.Sort(offline)
	slices.Sort(replaced)
	t.Logf("T = 2 s, 4 nodes: offline after %s to %s, median %s; replacements ready after a median of %s",
		offline[0], offline[len(offline)-1], offline[len(offline)/2], replaced[len(replaced)/2])
}

// nextDecision looks at the entries after an index. After a node was marked offline, the first entry that places
// instances must follow within 100 ms, and place the wanted number of instances.
func nextDecision(t *testing.T, w *world, index uint64, want int) {
	t.Helper()
	var offline model.Time
	for _, e := range w.history.since(index) {
		places := 0
		for _, g := range e.Groups {
			for _, c := range g {
				switch c := c.(type) {
				case *fsm.NodeHealth:
					if c.Health == model.HealthOffline {
						offline = e.At
					}
				case *fsm.InstancePlace:
					places++
				}
			}
		}
		if offline != 0 && places > 0 {
			if after := e.At.Sub(offline); places != want || after > 100 {
				t.Errorf("%d instances were placed %s after the node went offline, want %d at once", places, after, want)
			}
			return
		}
	}
	t.Error("nothing was placed")
}

// S13: the leader is cut off from all agents while the other servers hear them. Then one of the other servers is cut
// off as well, so that a majority hears nothing and one server objects. No node is marked offline, and no hold begins.
// The API shows for each node which server hears it, and work continues through the servers that agents can reach.
func TestLeaderCutOffFromAgents(t *testing.T) {
	inBubble(t, options{}, func(t *testing.T, w *world) {
		w.run("web", group("http", 8, 64*mib))
		leader := w.leader()
		for i, deaf := range []*server{leader, w.followers()[0]} {
			for _, n := range w.nodes {
				n.unplug(deaf)
			}
			time.Sleep(3 * time.Second)
			for _, n := range w.nodes {
				var row api.Node
				w.get("/v1/nodes/"+n.name, &row)
				if row.SeenBy == "" || row.SeenBy == leader.cluster.ID() || row.SeenBy == deaf.cluster.ID() {
					t.Errorf("%s: the leader shows seen_by %q", n.name, row.SeenBy)
				}
			}
			job := fmt.Sprintf("late%d", i)
			must(t, w.submit(job, group("http", 4, 64*mib)))
			w.ready(model.NewGroupID(model.JobName(job), "http"), 4, 2*time.Minute)
			w.never(time.Minute, "a node is offline, or a hold is set", func() bool {
				st := w.state()
				for _, n := range st.Nodes.All() {
					if n.Health == model.HealthOffline {
						return true
					}
				}
				return st.Hold.Active
			})
		}
		if got := w.leader(); got != leader {
			t.Errorf("%s leads now", got.name)
		}
		for _, n := range w.nodes {
			n.plug(w.servers...)
		}
		w.eventually(30*time.Second, "the leader sees them again", func() bool {
			for _, l := range leader.cluster.Live() {
				if l.SeenBy != "" || l.Age > 1000 {
					return false
				}
			}
			return true
		})
	})
}

// S12: five of eight agents are cut off. A hold begins before any node is marked offline, and nothing is evicted during
// the hold. The status shows the hold. The hold ends by itself when the number of silent nodes has been below half the
// hold's limit for 60 s.
func TestHoldWhenMostAgentsAreCutOff(t *testing.T) {
	inBubble(t, options{nodes: 8}, func(t *testing.T, w *world) {
		id := w.run("web", group("http", 16, 64*mib))
		before, running := w.members(id), w.truth.running()
		for _, n := range w.nodes[:5] {
			n.unplugAll()
		}
		began := time.Now()
		w.eventually(detection, "a hold", func() bool { st := w.state(); return st.Hold.Active })
		t.Logf("held %s after the cut", time.Since(began))
		var status api.Status
		w.get("/v1/status", &status)
		if !status.Hold.Active || status.Hold.Reason == "" || status.Hold.Since == nil {
			t.Errorf("the status shows %+v", status.Hold)
		}
		time.Sleep(5 * time.Minute)
		if h := w.state().Hold; !h.Active {
			t.Error("the hold ended although five of eight are silent")
		}
		for _, n := range w.nodes[:5] {
			n.plugAll()
		}
		back := time.Now()
		w.eventually(3*time.Minute, "the hold ends", func() bool { st := w.state(); return !st.Hold.Active })
		if took := time.Since(back); took < time.Minute || took > time.Minute+5*time.Second {
			t.Errorf("the hold ended %s after they were back, want a little more than a minute", took)
		}
		time.Sleep(10 * time.Second)
		same(t, w, id, before, running)
		if n := len(commands[*fsm.HoldSet](w.history)); n != 3 { // the hold began, became calm, and ended
			t.Errorf("%d entries are about the hold", n)
		}
	})
}

// same expects that the group still has the instances in before, ready and on the same nodes. No program may have
// started again or exited.
func same(t *testing.T, w *world, id model.GroupID, before map[model.InstanceID]fsm.Instance,
	running []model.InstanceID) {
	t.Helper()
	now := w.members(id)
	if len(now) != len(before) {
		t.Errorf("%d instances are wanted, there were %d", len(now), len(before))
	}
	for one, was := range before {
		if is, ok := now[one]; !ok || is.Node != was.Node || is.Status.Observed != model.ObservedReady {
			t.Errorf("instance %s was %s on %s, now %s (known: %v)", one, was.Status.Observed, was.Node, is.Status.Observed, ok)
		}
		if n := w.truth.startsOf(one); n != 1 {
			t.Errorf("the program of %s was started %d times", one, n)
		}
	}
	if got := w.truth.running(); !slices.Equal(got, running) {
		t.Errorf("programs %q run, before %q", got, running)
	}
}

// An agent that is cut off for longer than offline_after keeps its programs running. When it returns, it stops the
// instances that were replaced. An instance that fitted nowhere else is adopted as it is.
func TestReturnAfterACut(t *testing.T) {
	inBubble(t, options{}, func(t *testing.T, w *world) {
		big := w.run("big", group("one", 4, 3<<30))
		web := w.run("web", group("http", 4, 64*mib))
		n := w.nodes[0]
		var small, large []model.InstanceID
		for _, i := range n.placed() {
			if i.Group == big {
				large = append(large, i.ID)
			} else {
				small = append(small, i.ID)
			}
		}
		if len(small) != 1 || len(large) != 1 {
			t.Fatalf("%d small and %d large instances on %s, want one each\n%s", len(small), len(large), n.name, w.picture())
		}
		n.unplugAll()
		w.eventually(detection, "offline", func() bool { return n.row().Health == model.HealthOffline })
		w.ready(web, 4, 10*time.Second)
		time.Sleep(20 * time.Second)
		if n.programs.running() != 2 {
			t.Errorf("%d programs run on the node that is cut off, want 2", n.programs.running())
		}
		if st, _ := w.state().Instances.Get(large[0]); st.Status.Observed != model.ObservedLost ||
			st.Desired != model.DesiredRunning {
			t.Errorf("what fits nowhere else is %s, %s", st.Desired, st.Status.Observed)
		}
		n.plugAll()
		took := w.eventually(30*time.Second, "it has returned", func() bool {
			return n.row().State() == model.NodeActive && !n.row().Return.Recovering
		})
		w.ready(big, 4, 10*time.Second)
		w.eventually(20*time.Second, "what was replaced is stopped", func() bool { return n.programs.running() == 1 })
		t.Logf("returned after %s", took)
		if got := w.truth.startsOf(large[0]); got != 1 || !slices.Contains(w.truth.running(), large[0]) {
			t.Errorf("what was not replaced was started %d times", got)
		}
		if i, ok := w.state().Instances.Get(small[0]); ok && i.Desired != model.DesiredStopped {
			t.Errorf("what was replaced is desired %s", i.Desired)
		}
		if got := w.members(web); len(got) != 4 {
			t.Errorf("%d of web are wanted", len(got))
		}
	})
}

// Each outage of a flapping node doubles the time for which the node gets no new instances. After the first outage this
// time is 0, and after the second one 30 s.
func TestFlappingDoublesTheHold(t *testing.T) {
	inBubble(t, options{}, func(t *testing.T, w *world) {
		n := w.nodes[0]
		for i, want := range []model.Duration{0, 30 * model.Second, model.Minute, 2 * model.Minute} {
			n.unplugAll()
			w.eventually(detection, "offline", func() bool { return n.row().Health == model.HealthOffline })
			n.plugAll()
			w.eventually(time.Minute, "back", func() bool {
				return n.row().Health != model.HealthOffline && !n.row().Return.Recovering
			})
			row := n.row()
			if row.Return.Hold != want {
				t.Errorf("outage %d: held for %s, want %s", i+1, row.Return.Hold, want)
			}
			if want == 0 {
				continue
			}
			g := fmt.Sprintf("g%d", i)
			w.run(g, group("http", 9, 64*mib))
			if got := w.on(model.NewGroupID(model.JobName(g), "http"))[n.name]; got != 0 {
				t.Errorf("%d instances were placed on a node that is held back", got)
			}
		}
	})
}
