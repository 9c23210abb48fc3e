package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
)

// What was saved comes back, on every server, marked as restored, with an index and a clock that do not go back.
func TestSaveAndRestore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		r.mustRegister("kept")
		leader := r.leader(time.Second)
		ctx := context.Background()
		var saved bytes.Buffer
		if err := leader.Save(ctx, &saved); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			r.mustRegister(fmt.Sprintf("later%d", i))
		}
		before := leader.machine.State()
		for round := uint64(1); round <= 2; round++ { // the second time its incarnation is one it had already
			if err := leader.Restore(ctx, bytes.NewReader(saved.Bytes())); err != nil {
				t.Fatal(err)
			}
			r.agree(30 * time.Second)
			for _, s := range r.running() {
				now := s.machine.State()
				if now.Nodes.Len() != 1 || now.Incarnation != before.Incarnation+round || !now.Unconfirmed {
					t.Fatalf("%s: %d nodes, incarnation %d (was %d), unconfirmed %v", s.host, now.Nodes.Len(), now.Incarnation, before.Incarnation, now.Unconfirmed)
				}
				if now.Index <= before.Index || now.Now < before.Now {
					t.Errorf("went back: index %d after %d, time %d after %d", now.Index, before.Index, now.Now, before.Now)
				}
			}
			r.mustRegister(fmt.Sprintf("again%d", round))
		}
		// It survives a restart of everything.
		for _, s := range r.running() {
			s.stop()
		}
		for i := 1; i <= 3; i++ {
			r.start(i, nil)
		}
		if got := r.leader(20 * time.Second).machine.State(); got.Nodes.Len() != 2 || got.Incarnation != before.Incarnation+2 {
			t.Errorf("after a restart: %d nodes, incarnation %d", got.Nodes.Len(), got.Incarnation)
		}
	})
}

func TestRestoreRefusesBadSnapshots(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		r.mustRegister("n1")
		leader := r.leader(time.Second)
		ctx := context.Background()
		var saved, foreign bytes.Buffer
		if err := leader.Save(ctx, &saved); err != nil {
			t.Fatal(err)
		}
		other := leader.machine.State()
		other.Cluster.ID = "another"
		if err := fsm.WriteSnapshot(&foreign, other); err != nil {
			t.Fatal(err)
		}
		flipped := bytes.Clone(saved.Bytes())
		flipped[len(flipped)/2] ^= 1
		digest := fsm.Digest(leader.machine.State())
		for what, c := range map[string]struct {
			data []byte
			code fsm.Code
		}{
			"nothing":           {nil, fsm.CodeInvalid},
			"a text":            {[]byte("hello, this is no snapshot at all"), fsm.CodeInvalid},
			"one cut short":     {saved.Bytes()[:saved.Len()-5], fsm.CodeInvalid},
			"a flipped bit":     {flipped, fsm.CodeInvalid},
			"another cluster's": {foreign.Bytes(), fsm.CodeConflict},
		} {
			if err := leader.Restore(ctx, bytes.NewReader(c.data)); !errors.Is(err, &fsm.Error{Code: c.code}) {
				t.Errorf("%s: %v, want %s", what, err, c.code)
			}
		}
		if fsm.Digest(leader.machine.State()) != digest {
			t.Error("a refused snapshot changed the state")
		}
		for _, s := range r.running() {
			if s != leader {
				if err := s.Restore(ctx, bytes.NewReader(saved.Bytes())); !errors.Is(err, &fsm.Error{Code: fsm.CodeNoLeader}) {
					t.Errorf("at a follower: %v", err)
				}
			}
		}
	})
}

// With few entries kept behind, a server that was away needs a snapshot; and so does a new one.
func TestServersCatchUpBySnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		_, away := r.oneBehind(fewLogs)
		r.net.Heal()
		back := r.start(hostNumber(away.host), fewLogs)
		fourth := r.start(4, fewLogs)
		for _, s := range []*rigServer{back, fourth} {
			eventually(t, time.Minute, "caught up", func() bool { return s.machine.State().Nodes.Len() == 60 })
		}
		if fourth.fsm.installs.Load() == 0 {
			t.Error("the new server got every entry, although few are kept")
		}
		r.agree(10 * time.Second)
	})
}

// The log is counted in entries by raft; large ones need an earlier snapshot, and fewer kept behind it.
func TestLargeLogIsShortened(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		leader := r.start(1, func(c *Config) {
			c.BootstrapExpect, c.Gossip.Join, c.Raft.MaxLogBytes = 1, nil, 150_000
		})
		r.leader(10 * time.Second)
		for i := range 1000 {
			r.mustRegister(fmt.Sprintf("n%04d", i))
		}
		if leader.disk.store.appendedBytes() < 150_000 {
			t.Fatalf("only %d bytes were written", leader.disk.store.appendedBytes())
		}
		eventually(t, 2*logCheck, "a snapshot", func() bool { return leader.Status().Snapshot > 0 })
		first, err := leader.disk.store.inner.FirstIndex()
		if err != nil || first < 100 {
			t.Errorf("the log still begins at %d, %v", first, err)
		}
		if got := leader.raft.ReloadableConfig().TrailingLogs; got != 65536 {
			t.Errorf("%d trailing logs afterwards, want the usual 65536", got)
		}
	})
}

// Two of three servers are lost for good; the third goes on alone.
func TestRecover(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		for i := range 10 {
			r.mustRegister(fmt.Sprintf("n%d", i))
		}
		r.agree(5 * time.Second)
		survivor := r.running()[1]
		if _, err := Recover(RecoverConfig{DataDir: survivor.dir, Cluster: "test"}, host(2)+":7640"); !errors.Is(err, &fsm.Error{Code: fsm.CodeConflict}) {
			t.Errorf("recovered a running server: %v", err)
		}
		for _, s := range r.running() {
			s.crash()
		}
		servers, err := Recover(RecoverConfig{DataDir: survivor.dir, Cluster: "test"}, host(2)+":7640")
		if err != nil {
			t.Fatal(err)
		}
		if len(servers) != 1 || servers[0].ID != survivor.ID() {
			t.Errorf("recovered %v", servers)
		}
		r.net.Heal()
		r.mu.Lock()
		r.servers = map[string]*rigServer{survivor.host: survivor}
		r.mu.Unlock()
		r.start(2, nil)
		r.mustRegister("after")
		state := r.leader(time.Second).machine.State()
		if got := state.Nodes.Len(); got != 11 {
			t.Errorf("%d nodes, want 11", got)
		}
		// What was acknowledged last may be lost: epochs must not come again, and agents stop nothing that they alone know.
		if state.Incarnation != 1 || !state.Unconfirmed {
			t.Errorf("incarnation %d, unconfirmed %v after the recovery; want 1, true", state.Incarnation, state.Unconfirmed)
		}
		for id, n := range state.Nodes.All() {
			if n.Assigned == 0 && n.Name != "after" {
				t.Errorf("the agent of %s is not told of it", id)
			}
		}
		for range 2 { // a restart is no recovery
			r.running()[0].crash()
			r.start(2, nil)
			r.mustRegister(fmt.Sprint("later", r.running()[0].machine.State().Nodes.Len()))
		}
		if got := r.leader(time.Second).machine.State(); got.Incarnation != 1 {
			t.Errorf("incarnation %d after restarts, want 1", got.Incarnation)
		}
		if _, err := Recover(RecoverConfig{DataDir: t.TempDir(), Cluster: "test"}, "x:1"); err == nil {
			t.Error("recovered an empty directory")
		}
	})
}

// Where two servers are recovered together, the state is marked once, whichever leads first and next.
func TestRecoverTwo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		r.mustRegister("n1")
		r.agree(5 * time.Second)
		kept := r.running()[:2]
		var both []Peer
		for i, s := range kept {
			both = append(both, Peer{s.ID(), host(i+1) + ":7640"})
		}
		for _, s := range r.running() {
			s.crash()
		}
		for _, s := range kept {
			if _, err := Recover(RecoverConfig{DataDir: s.dir, Cluster: "test", Servers: both}, ""); err != nil {
				t.Fatal(err)
			}
		}
		r.net.Heal()
		r.mu.Lock()
		r.servers = map[string]*rigServer{kept[0].host: kept[0], kept[1].host: kept[1]}
		r.mu.Unlock()
		for i := range kept {
			r.start(i+1, nil)
		}
		for range 3 {
			leader := r.leader(time.Minute)
			r.mustRegister(fmt.Sprint("under-", leader.host, leader.machine.State().Index))
			if got := leader.machine.State().Incarnation; got != 1 {
				t.Fatalf("incarnation %d, want 1", got)
			}
			if err := leader.TransferLeader(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			eventually(t, time.Minute, "another leads", func() bool { l := r.leader(time.Minute); return l.host != leader.host })
		}
		for _, s := range r.running() {
			eventually(t, time.Minute, "the mark of "+s.host+" is gone", func() bool {
				_, err := os.Stat(filepath.Join(s.dir, "recovered.json"))
				return errors.Is(err, fs.ErrNotExist)
			})
		}
	})
}

// While leadership is handed to a server that needs a snapshot, raft asks for one again and again without a pause. Where the snapshots can't be
// read that must not take the whole processor: in fake time it would be the end of all time.
func TestTransferWithoutSnapshots(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		first, away := r.oneBehind(fewLogs)
		second := r.other(first)
		aside := map[string]string{}
		for i, s := range []*rigServer{first, second} {
			eventually(t, time.Minute, "a snapshot", func() bool { return s.Status().Snapshot > 0 })
			aside[filepath.Join(s.dir, "snapshots")] = filepath.Join(t.TempDir(), fmt.Sprint(i))
		}
		for path, kept := range aside {
			if err := os.Rename(path, kept); err != nil {
				t.Fatal(err)
			}
		}
		r.net.Heal()
		back := r.start(hostNumber(away.host), fewLogs)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := first.TransferLeader(ctx, second.ID()); err != nil { // one for whom no request has failed: raft would wait longer and longer then
			t.Fatal(err)
		}
		eventually(t, 10*time.Second, "the second leads", func() bool { return second.Term() > 0 })
		if err := second.TransferLeader(ctx, back.ID()); err == nil {
			t.Error("a server leads that lacks entries")
		}
		for path, kept := range aside {
			if err := os.Rename(kept, path); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, time.Minute, "caught up", func() bool { return back.machine.State().Nodes.Len() == 60 })
	})
}
