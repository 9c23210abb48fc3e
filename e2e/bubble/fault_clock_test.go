package bubble

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// S8 (docs/model.md, "Time"): the wall clocks of servers differ, and jump forward and back by years, while leaders
// change. Because of the clocks, no deadline passes early or late, no node goes offline, and no hold begins. Cluster
// time neither jumps nor goes back.
func TestWallClocksJump(t *testing.T) {
	eachRandom(t, 1, func(t *testing.T, random *rand.Rand) {
		inBubble(t, options{seed: random.Uint64()}, func(t *testing.T, w *world) {
			full := w.run("full", group("big", 4, 3<<30)) // one instance fills a node, so a drain is blocked until its deadline
			before, running := w.members(full), w.truth.running()
			began := time.Now()
			const after = 50 * time.Second
			n := w.nodes[0]
			drain, err := w.drain(choices{Nodes: []string{n.name}, Deadline: model.Duration(after.Milliseconds())})
			must(t, err)
			var dark time.Duration
			clock, at := w.leader().cluster.Now(), time.Now()
			first := clock
			for time.Since(began) < after-3*time.Second {
				for _, s := range w.servers {
					s.skew.Store(random.Int64N(int64(40*365*24*time.Hour)) - int64(20*365*24*time.Hour))
				}
				_, err := w.send("/v1/nodes/"+n.name+"/label",
					map[string]any{"labels": map[string]string{"at": time.Now().Format("05")}})
				must(t, err)
				if random.IntN(4) == 0 {
					old := w.leader()
					old.kill()
					dark += w.eventually(10*electionTimeout, "L1: another leader", func() bool {
						l := w.leads()
						return l != nil && l != old
					})
					old.restart()
				}
				time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond)
				now := w.leader().cluster.Now()
				// A new leader's cluster time may lag behind real time for a moment. But it must never go back or run ahead by over
				// 1 s.
				if passed, truly := time.Duration(now.Sub(first))*time.Millisecond, time.Since(at); now < clock ||
					passed > truly+time.Second {
					t.Fatalf("S8: cluster time went from %d over %d to %d in %s", first, clock, now, truly)
				}
				clock = now
			}
			// The last round of the loop may have ended after the deadline, because a round can wait for another leader.
			if phase := w.part(drain, n).Phase; phase != model.PhaseDraining && time.Since(began) < after {
				t.Errorf("S8: the drain is %s %s before its deadline", phase, after-time.Since(began))
			}
			w.eventually(time.Minute, "L2: the drain ends", func() bool { return w.part(drain, n).Phase == model.PhaseFailed })
			if late := time.Since(began) - after; late < 0 || late > dark+2*time.Second {
				t.Errorf("S8: the drain ended %s after its deadline; there was no leader for %s", late, dark)
			}
			for _, c := range commands[*fsm.NodeHealth](w.history) {
				if c.Health == model.HealthOffline {
					t.Errorf("S13: node %s was marked offline: %s", c.ID, c.Reason)
				}
			}
			if w.state().Hold.Active {
				t.Error("S13: a hold is set")
			}
			same(t, w, full, before, running)
			w.agree()
		})
	})
}
