package reconcile_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// If the log refuses groups that the draft accepted, or if Submit fails, the loop waits longer and longer between its
// tries.
func TestLoopBacksOff(t *testing.T) {
	tests := map[string]func(*rig){
		"submit fails": func(r *rig) {
			r.refuse = func(fsm.Entry) error { return model.Refuse(model.CodeNoLeader, "no leader") }
		},
		"groups are refused": func(r *rig) {
			r.refuse = func(fsm.Entry) error { return nil }
		},
	}
	for name, breakIt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.nodes("n1")
				breakIt(r)
				cfg := r.config()
				if name == "groups are refused" {
					cfg.Term = 7 // the log is in term 1, so it refuses entries of term 7
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- reconcile.New(cfg).Run(ctx) }()
				r.write(&fsm.JobSubmit{Spec: bigJob("web", 1)})
				time.Sleep(time.Minute)
				n := r.count(func(r *rig) int { return r.submitted })
				if n < 5 || n > 30 {
					t.Errorf("%d tries in a minute", n)
				}
				r.mu.Lock()
				r.refuse = nil
				r.mu.Unlock()
				cancel()
				<-done
			})
		})
	}
}

// If a stream of writes makes each decision stale, the loop is delayed, but only until the writes end.
func TestLoopAfterStaleDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.latency = 7 * time.Millisecond
		r.nodes("n1")
		defer r.start(t.Context())()
		for i := range 4000 { // a write is always applied between a decision and the application of its entry
			r.write(&fsm.JobSubmit{Spec: bigJob("web", i%2)})
			time.Sleep(5 * time.Millisecond)
		}
		if n := r.count(func(r *rig) int { return r.refusals }); n < 20 {
			t.Fatalf("%d decisions were overtaken: nothing was tried", n)
		}
		time.Sleep(500 * time.Millisecond)
		if g := r.group("web/main"); g.Placed == 0 {
			t.Errorf("nothing is placed half a second after the last write: %d decisions were overtaken",
				r.count(func(r *rig) int { return r.refusals }))
		}
	})
}

// A silent node is marked offline in time even while its labels are changed continually (L4 in docs/proof.md).
func TestLoopMarksOfflineWhileLabelsAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.latency = 7 * time.Millisecond
		r.nodes("n1", "n2", "n3")
		r.mu.Lock()
		r.live["n1"] = fsm.Liveness{Age: model.Minute, Silent: true, Gossip: fsm.GossipDead}
		r.mu.Unlock()
		defer r.start(t.Context())()
		for i := range 200 {
			r.write(&fsm.NodeLabel{ID: "n1", Labels: map[string]string{"at": fmt.Sprint(i)}})
			time.Sleep(5 * time.Millisecond)
		}
		s := r.state()
		if n, _ := s.Nodes.Get("n1"); n.Health != model.HealthOffline {
			t.Errorf("n1 is %s after a second; %d decisions were overtaken", n.Health, r.count(func(r *rig) int {
				return r.refusals
			}))
		}
	})
}

// lopsided places all instances of a job on n1, because n2 is cordoned, and waits for an hour. If n2 is uncordoned
// afterwards, the rescheduler moves some of the instances.
func (r *rig) lopsided() {
	r.nodes("n1", "n2")
	r.write(&fsm.NodeIntent{ID: "n2", Intent: model.IntentCordoned})
	defer r.start(r.t.Context())()
	r.write(&fsm.JobSubmit{Spec: bigJob("web", 8)})
	time.Sleep(3 * time.Second)
	r.agents()
	time.Sleep(time.Hour)
}

// moves returns the number of instances that the rescheduler is moving.
func (r *rig) moves() (n int) {
	s := r.state()
	for _, inst := range s.Instances.All() {
		if inst.Eviction.Cause.IsMove() {
			n++
		}
	}
	return n
}

// If decisions take long, the rescheduler takes part in few of them. When nothing else happens, it still begins moves.
func TestLoopLetsTheReschedulerWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.think = 100 * time.Millisecond
		r.lopsided()
		defer r.start(t.Context())()
		time.Sleep(time.Minute)
		r.write(&fsm.NodeLabel{ID: "n1", Labels: map[string]string{"at": "first"}})
		time.Sleep(500 * time.Millisecond)
		r.write(&fsm.NodeIntent{ID: "n2", Intent: model.IntentActive})
		before := r.count(func(r *rig) int { return r.decisions })
		time.Sleep(time.Second)
		if n, decided := r.moves(), r.count(func(r *rig) int { return r.decisions })-before; n != 0 || decided == 0 {
			t.Errorf("%d moves in %d decisions while the rescheduler rests, want none in some", n, decided)
		}
		time.Sleep(3 * time.Second)
		if r.moves() == 0 {
			t.Error("no move although nothing else happens")
		}
	})
}

// The rescheduler begins no moves in the first five seconds of a new leader.
func TestLoopOfANewLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lopsided()
		r.write(&fsm.NodeIntent{ID: "n2", Intent: model.IntentActive})
		defer r.start(t.Context())()
		time.Sleep(4 * time.Second)
		if n := r.moves(); n != 0 {
			t.Errorf("%d moves in the first four seconds", n)
		}
		time.Sleep(3 * time.Second)
		if r.moves() == 0 {
			t.Error("no move after seven seconds")
		}
	})
}

// After a decision the loop rests, so that changes gather: as long as a decision takes while there is something to do,
// and longer, within limits, while there is nothing.
func TestLoopRests(t *testing.T) {
	for _, tt := range []struct {
		name        string
		think       time.Duration
		busy        bool
		least, most int // decisions in a second of constant writes
	}{
		{"busy", 20 * time.Millisecond, true, 20, 25},
		{"idle", 5 * time.Millisecond, false, 16, 20},
		{"idle, slow decisions", 100 * time.Millisecond, false, 4, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.think = tt.think
				r.nodes("n1")
				defer r.start(t.Context())()
				for i := range 1000 {
					if tt.busy {
						r.write(&fsm.JobSubmit{Spec: bigJob("web", i)})
					} else {
						r.write(&fsm.NodeLabel{ID: "n1", Labels: map[string]string{"at": fmt.Sprint(i)}})
					}
					time.Sleep(time.Millisecond)
				}
				if n := r.count(func(r *rig) int { return r.decisions }); n < tt.least || n > tt.most {
					t.Errorf("%d decisions in a second, want %d to %d", n, tt.least, tt.most)
				}
			})
		})
	}
}

// After a refusal the loop rests as long as after any other decision, also if planned entries were queued when the
// refusal came.
func TestLoopRestsAfterARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.nodes("n1")
		r.think, r.latency = time.Second, 50*time.Millisecond
		cfg := r.config()
		cfg.Term = 7 // the log is in term 1, so it refuses entries of term 7
		cfg.InFlight, cfg.Gap = 1, 100*time.Millisecond
		began := make(chan time.Time, 100)
		cfg.Reports = func(report reconcile.Report) {
			if report.Took > 0 {
				began <- time.Now().Add(-report.Took)
			}
		}
		r.write(&fsm.JobSubmit{Spec: bigJob("web", 3000)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- reconcile.New(cfg).Run(ctx) }()
		first := <-began
		time.Sleep(10 * time.Millisecond)
		r.write(&fsm.NodeLabel{ID: "n1", Labels: map[string]string{"at": "now"}}) // the loop wakes before the refusal
		if pause := (<-began).Sub(first); pause < 2*time.Second {
			t.Errorf("a decision took 1s, and the next one began %s after its begin, want at least 2s", pause)
		}
		cancel()
		<-done
		time.Sleep(time.Second) // the rig's log ends with its last entry
	})
}
