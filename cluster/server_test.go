package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
)

// Three new servers begin one cluster. The leader crashes, another server leads with the same state, and the crashed
// server catches up after its restart.
func TestFailover(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		first := r.leader(time.Second)
		for i := range 20 {
			r.mustRegister(fmt.Sprintf("n%02d", i))
		}
		r.agree(5 * time.Second)
		clusterID := first.ClusterID()
		if clusterID == "" || len(first.voters()) != 3 {
			t.Fatalf("cluster id %q, %d voters", clusterID, len(first.voters()))
		}

		began := time.Now()
		first.crash()
		second := r.leader(20 * time.Second)
		if took := time.Since(began); took > 12*time.Second {
			t.Errorf("failover took %s", took)
		}
		if second.host == first.host {
			t.Fatal("the dead server leads")
		}
		r.mustRegister("after")
		if got := second.machine.State().Nodes.Len(); got != 21 {
			t.Errorf("%d nodes after the failover, want 21", got)
		}
		if second.ClusterID() != clusterID {
			t.Errorf("the cluster changed its id to %s", second.ClusterID())
		}

		r.net.Heal()
		back := r.start(hostNumber(first.host), nil)
		if back.ID() != first.ID() {
			t.Errorf("came back as %s, was %s", back.ID(), first.ID())
		}
		eventually(t, 20*time.Second, "the restarted server caught up", func() bool {
			return back.CaughtUp() && back.machine.State().Nodes.Len() == 21
		})
		r.agree(5 * time.Second)
		if err := fsm.Check(back.machine.State()); err != nil {
			t.Error(err)
		}
	})
}

func hostNumber(host string) int {
	var i int
	fmt.Sscanf(host, "10.0.0.%d", &i)
	return i
}

// A leader that is stopped as planned hands leadership over, so that the others don't wait for an election timeout.
func TestPlannedStopHandsOver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		first := r.leader(time.Second)
		time.Sleep(3 * time.Second)
		began := time.Now()
		first.stop()
		if first.err != nil {
			t.Errorf("Run returned %v after a planned stop", first.err)
		}
		r.leader(5 * time.Second)
		if took := time.Since(began); took > time.Second {
			t.Errorf("another led after %s; an election takes longer than a hand-over", took)
		}
	})
}

// Leaders are cut off again and again. No acknowledged write is lost, and two servers never lead in one term.
func TestIsolationLoop(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		acknowledged := 0
		for i := range 30 {
			leader := r.leader(30 * time.Second)
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			if err := leader.register(ctx, fmt.Sprintf("n%02d", i)); err == nil {
				acknowledged++
			}
			cancel()
			r.isolate(leader.host)
			// The leader that is cut off acknowledges no write.
			ctx, cancel = context.WithTimeout(context.Background(), 10*time.Second)
			if err := leader.register(ctx, fmt.Sprintf("lost%02d", i)); err == nil {
				t.Fatalf("round %d: a leader without a majority acknowledged a write", i)
			}
			cancel()
			if next := r.leader(30 * time.Second); next == leader {
				t.Fatalf("round %d: the isolated server leads", i)
			}
			r.net.Heal()
		}
		r.mustRegister("last")
		r.agree(30 * time.Second)
		have := 0
		for id := range r.leader(time.Second).machine.State().Nodes.All() {
			if id[0] == 'n' {
				have++
			}
		}
		if have < acknowledged || acknowledged < 25 {
			t.Errorf("%d of %d acknowledged writes are there", have, acknowledged)
		}
		terms := map[uint64]string{}
		for _, s := range r.all() {
			s.mu.Lock()
			for _, term := range s.led {
				if other, twice := terms[term]; twice {
					t.Errorf("term %d was led by %s and %s", term, other, s.host)
				}
				terms[term] = s.host
			}
			s.mu.Unlock()
		}
	})
}
