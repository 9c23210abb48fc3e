package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
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

// A newer program wrote the only snapshot. The error of Open says so, and says which format the snapshot needs.
func TestOpenNewerSnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var saved bytes.Buffer
		s, results := fsm.NewState().
			Apply(1, 1, fsm.Entry{Format: model.CurrentFormat, Actor: model.ActorLeader, Groups: [][]fsm.Command{{
				&fsm.ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()}}}})
		if results[0].Refusal != nil {
			t.Fatal(results[0].Refusal)
		}
		if err := fsm.WriteSnapshot(&saved, s); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "data")
		again := RecoverConfig{DataDir: dir, Cluster: "test", Address: host(1) + ":7640"}
		made := again
		made.Snapshot = &saved
		recovered, err := Recover(made)
		if err != nil {
			t.Fatal(err)
		}
		replaceByNewer(t, dir, recovered.ID)
		needs := &model.Error{Code: model.CodeNeedsFormat}
		opened := newRig(t).open(1, func(c *Config) { c.DataDir = dir })
		if !errors.Is(opened.err, needs) {
			t.Errorf("opened: %v; want %s", opened.err, needs.Code)
		}
		if _, err := Recover(again); err == nil || !strings.Contains(err.Error(), "needs format") {
			t.Errorf("recovered: %v; want an error that names the format", err)
		}
	})
}

// replaceByNewer replaces all snapshots of a data directory by the beginning of one that only a newer program can read.
func replaceByNewer(t *testing.T, dir string, id model.ServerID) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, dirSnapshots)); err != nil {
		t.Fatal(err)
	}
	snaps, err := newSealedSnapshots(dir, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	_, trans := raft.NewInmemTransport("")
	sink, err := snaps.Create(raft.SnapshotVersionMax, 9, 1, alone(id, host(1)+":7640"), 9, trans)
	if err != nil {
		t.Fatal(err)
	}
	head := binary.BigEndian.AppendUint16([]byte("outspan\n"), model.CurrentFormat+1)
	head = binary.BigEndian.AppendUint32(head, crc32.Checksum(head, crc32.MakeTable(crc32.Castagnoli)))
	if _, err := sink.Write(head); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
}
