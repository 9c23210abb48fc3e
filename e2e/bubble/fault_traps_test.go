package bubble

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/fsm"
)

// Each test in this file covers a mistake that the defaults of a library lead to (cluster/DESIGN.md, "Traps"). The test
// fails in a build that contains the mistake (internal/plant).

// follows expects that a server has everything that was committed before the call, within 30 s.
func (w *world) follows(s *server, why string) {
	w.t.Helper()
	want := w.state().Index
	w.eventually(30*time.Second, fmt.Sprintf("S4: %s has the %d entries that were acknowledged, %s", s.name, want, why),
		func() bool {
			return s.running() && s.state().Index >= want
		})
}

// burst sends many writes to the leader and does not wait for their outcomes.
func (w *world) burst(many int) {
	leader := w.leader()
	for i := range many {
		e := fsm.Entry{Actor: "cli:test",
			Groups: [][]fsm.Command{{&fsm.NodeLabel{ID: w.nodes[0].id, Labels: map[string]string{"burst": fmt.Sprint(i)}}}}}
		if _, err := leader.cluster.Submit(w.t.Context(), e); err != nil {
			w.t.Logf("submit: %v", err)
			return
		}
	}
}

// A follower fails to append entries to its log while the leader sends it more entries. If the follower's process
// continued, nothing would ever be replicated to it again. So the process must exit. After a restart on a working disk,
// the follower catches up.
func TestFollowerWhoseDiskFailsOnce(t *testing.T) {
	inBubble(t, options{nodes: 1}, func(t *testing.T, w *world) {
		l := w.keep(2, rand.New(rand.NewPCG(1, 1)))
		for range 3 {
			s := w.followers()[0]
			s.mayFail.Store(true)
			w.burst(300)
			s.disk.Fail(syscall.EIO)
			w.burst(300)
			time.Sleep(3 * time.Second)
			s.disk.Fail(nil)
			if s.running() {
				t.Errorf("%s goes on after its disk failed", s.name)
			}
			s.again()
			w.follows(s, "after its disk failed for a moment")
		}
		l.stop()
		w.agree()
	})
}

// Heartbeats need no disk, so a leader whose disk hangs would stay leader forever. Its process must exit, and another
// server must become leader. After a restart, the old leader catches up.
func TestLeaderWhoseDiskHangs(t *testing.T) {
	inBubble(t, options{nodes: 1}, func(t *testing.T, w *world) {
		l := w.keep(2, rand.New(rand.NewPCG(1, 1)))
		old := w.leader()
		old.mayFail.Store(true)
		old.disk.Hang()
		const watchdog = 10 * time.Second
		took := w.eventually(watchdog+10*electionTimeout,
			"L1: another server leads after the leader's disk hung", func() bool {
				leader := w.leads()
				return leader != nil && leader != old
			})
		t.Logf("another leads %s after the disk of the leader hung", took)
		must(t, w.submit("web", group("http", 2, 64*mib)))
		w.ready("web/http", 2, time.Minute)
		old.disk.Resume()
		old.again()
		w.follows(old, "after its disk hung")
		l.stop()
		w.agree()
	})
}

// A leader that was cut off has many entries at the end of its log that no other server has. The other servers have
// shortened their logs beyond the point where the logs begin to differ, so the old leader needs a snapshot. The
// snapshot's index is lower than the end of the old leader's log. One snapshot must be enough for the old leader to
// follow again.
func TestDivergentTailGetsASnapshot(t *testing.T) {
	raft := cluster.RaftConfig{SnapshotInterval: time.Second, SnapshotThreshold: 16, TrailingLogs: 8}
	inBubble(t, options{nodes: 1, raft: raft}, func(t *testing.T, w *world) {
		old := w.leader()
		for _, s := range w.servers {
			if s != old {
				w.net.Drop(old.host, s.host)
				w.net.Drop(s.host, old.host)
			}
		}
		parts := old.cluster.Status().LastIndex
		w.burst(400)
		w.eventually(10*electionTimeout, "L1: another leads", func() bool { l := w.leads(); return l != nil && l != old })
		w.eventually(5*time.Second, "the old leader has written its tail", func() bool {
			return old.cluster.Status().LastIndex >= parts+400
		})
		write := func(times int) {
			for i := range times {
				_, err := w.send("/v1/nodes/n1/label", map[string]any{"labels": map[string]string{"n": fmt.Sprint(i)}})
				must(t, err)
			}
		}
		write(60)
		w.eventually(10*time.Second, "the leader has shortened its log as far as it does", func() bool {
			s := w.leader().cluster.Status()
			return s.Snapshot+raft.SnapshotThreshold > s.LastIndex
		})
		leader := w.leader().cluster.Status()
		tail := old.cluster.Status().LastIndex
		t.Logf("they part at %d; the leader's snapshot is at %d, its log ends at %d, the old leader's at %d", parts,
			leader.Snapshot, leader.LastIndex, tail)
		if tail <= leader.LastIndex {
			t.Fatal("the tail is too short to matter")
		}
		old.mayFail.Store(true) // the process exits after the snapshot, because raft does not know that its tail is gone
		w.net.Heal()
		write(5)
		w.eventually(30*time.Second,
			fmt.Sprintf("S4: %s has what was acknowledged, after it was sent a snapshot onto a tail of its own", old.name),
			func() bool {
				if old.ended() {
					old.again()
				}
				return old.state().Index >= w.state().Index
			})
		write(5)
		w.follows(old, "after a snapshot has replaced its tail")
		w.agree()
	})
}
