package bubble

import (
	"testing"
	"time"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Two drains are blocked for 50 minutes, in which nothing is written to the log. Then the leader is killed. The first
// deadline is 1 s after that, when there may be no leader, and the second one is 29 s later. Each drain fails at its
// absolute deadline, late by at most 2 s plus the time without a leader.
func TestIdleDrainKeepsItsDeadline(t *testing.T) {
	o := options{profile: cluster.ProfileLAN, settings: func(s *model.Settings) { s.OfflineAfter = model.Minute }}
	inBubble(t, o, func(t *testing.T, w *world) {
		const idle = 50 * time.Minute
		w.run("full", group("big", 4, 3<<30)) // one instance fills a node, so no replacement has room
		began := time.Now()
		deadlines := map[*node]time.Duration{w.nodes[0]: idle + time.Second, w.nodes[1]: idle + 30*time.Second}
		drains := map[*node]model.DrainID{}
		for n, after := range deadlines {
			id, err := w.drain(choices{Nodes: []string{n.name}, Deadline: model.Duration(after.Milliseconds())})
			must(t, err)
			drains[n] = id
		}
		time.Sleep(10 * time.Second)
		old := w.leader()
		index := old.cluster.Status().LastIndex
		time.Sleep(idle / 2)
		for _, s := range w.followers() {
			s.stop()
			s.restart()
			w.eventually(10*time.Second, "caught up", s.cluster.CaughtUp)
		}
		time.Sleep(time.Until(began.Add(idle)))
		if got := old.cluster.Status().LastIndex; got != index {
			t.Errorf("%d entries were written while nothing happened", got-index)
		}
		old.kill()
		gap := w.eventually(10*time.Second, "another leader", func() bool { return w.leads() != nil })
		for n, after := range deadlines {
			w.eventually(time.Minute, "the drain failed", func() bool {
				return w.part(drains[n], n).Phase != model.PhaseDraining
			})
			part := w.part(drains[n], n)
			ended := w.ended(drains[n])
			late := ended.Sub(began.Add(after))
			t.Logf("deadline %s after the start: ended %s later; no leader for %s", after, late, gap)
			if part.Phase != model.PhaseFailed || part.LastError == "" {
				t.Errorf("it ended as %s with %q, want failed with its blockers", part.Phase, part.LastError)
			}
			if late < 0 || late > gap+2*time.Second {
				t.Errorf("it ended %s after its deadline, no leader for %s", late, gap)
			}
		}
		if w.leader() == old {
			t.Error("the dead leader leads")
		}
	})
}

// ended returns the wall time of the last entry that ended a node's part of the drain.
func (w *world) ended(id model.DrainID) time.Time {
	var last int64
	for _, e := range w.history.find(func(committed) bool { return true }) {
		for _, g := range e.Groups {
			for _, c := range g {
				if end, ok := c.(*fsm.DrainEnd); ok && end.ID == id {
					last = e.Wall
				}
			}
		}
	}
	return time.UnixMilli(last)
}

// The leader is killed in the middle of a drain. Within 5 s the next leader continues the drain with the same deadline.
// It starts no second replacement, and counts the old leader's stops toward the rate. At least min_ready programs serve
// at any time.
func TestLeaderKilledInMidDrain(t *testing.T) {
	for name, test := range map[string]struct {
		end   func(*server)
		limit time.Duration
	}{
		"killed": {(*server).kill, 5 * time.Second},
		// Agents that poll a machine without power get no error. They notice within 25 s, by unanswered pings.
		"no power": {func(s *server) { s.powerOff() }, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, options{}, func(t *testing.T, w *world) { drainOverFailover(t, w, test.end, test.limit) })
		})
	}
}

func drainOverFailover(t *testing.T, w *world, end func(*server), limit time.Duration) {
	w.lead(w.servers[0]) // all agents use the first server, so they are connected to the leader that this test ends
	web := group("http", 12, 64*mib)
	web.Budget = &model.BudgetSpec{MinReady: amount(11), Rate: &model.RateSpec{Max: 1, Window: 4 * model.Second}}
	web.Env = map[string]string{"SLOW": "2s"}
	id := w.run("web", web)
	w.truth.hold(id, 11)
	n := w.node(busiest(w, id))
	moving := len(n.placed())
	drain, err := w.drain(choices{Nodes: []string{n.name}, Deadline: 10 * model.Minute})
	must(t, err)
	deadline := w.part(drain, n).Deadline
	w.eventually(time.Minute, "the drain has moved one", func() bool { return w.part(drain, n).Moved == 1 })
	old := w.leader()
	end(old)
	took := w.eventually(5*time.Second, "the drain goes on", func() bool { return w.part(drain, n).Moved == 2 })
	seen := w.eventually(limit, "the agent goes on", func() bool { return n.programs.running() <= moving-2 })
	t.Logf("the next stop began %s after the end of the leader, and its program has ended after %s", took, took+seen)
	w.eventually(5*time.Minute, "drained", func() bool { return w.part(drain, n).Phase == model.PhaseDrained })
	if got := w.part(drain, n); got.Deadline != deadline || got.Moved != moving {
		t.Errorf("deadline %d became %d, %d of %d moved", deadline, got.Deadline, got.Moved, moving)
	}
	if n.programs.running() != 0 {
		t.Errorf("drained, and %d programs run", n.programs.running())
	}
	w.ready(id, 12, time.Minute)
	if placed := len(commands[*fsm.InstancePlace](w.history)); placed != 12+moving {
		t.Errorf("%d instances were placed for %d that moved: a second replacement", placed-12, moving)
	}
	old.restart()
	w.agree()
}

// busiest returns the node with the most instances of a group.
func busiest(w *world, id model.GroupID) (most model.NodeID) {
	count := map[model.NodeID]int{}
	for _, i := range w.members(id) {
		if count[i.Node]++; count[i.Node] > count[most] || count[i.Node] == count[most] && i.Node < most {
			most = i.Node
		}
	}
	return most
}
