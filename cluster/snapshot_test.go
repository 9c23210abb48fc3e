package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Without a quorum, Save is refused, because nobody knows which writes were acknowledged. SaveStale saves the state
// that the server has, and does not change SavedAt.
func TestSaveWithoutALeader(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		r.mustRegister("kept")
		last := r.other(r.leader(time.Second))
		r.agree(30 * time.Second)
		for _, s := range r.running() {
			if s != last {
				s.crash()
			}
		}
		var refused *model.Error
		if err := last.Save(t.Context(), io.Discard); !errors.As(err, &refused) || refused.Code != model.CodeNoLeader {
			t.Errorf("saved without a quorum: %v", err)
		}
		var saved bytes.Buffer
		if err := last.SaveStale(&saved); err != nil {
			t.Fatal(err)
		}
		if at := last.Condition().SavedAt; at != 0 {
			t.Errorf("a backup is noted at %d", at)
		}
		state, err := fsm.ReadSnapshot(&saved)
		if err != nil {
			t.Fatal(err)
		}
		if state.Nodes.Len() != 1 {
			t.Errorf("%d nodes were saved, want 1", state.Nodes.Len())
		}
	})
}

// After a restore, every server has the saved state, which is marked as unconfirmed. The index and the time of the
// state don't go back.
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
		for round := uint64(1); round <= 2; round++ { // round 2 must not use the incarnation of round 1 again
			if err := leader.Restore(ctx, bytes.NewReader(saved.Bytes())); err != nil {
				t.Fatal(err)
			}
			r.agree(30 * time.Second)
			for _, s := range r.running() {
				now := s.machine.State()
				if now.Nodes.Len() != 1 || now.Incarnation != before.Incarnation+round || !now.Unconfirmed {
					t.Fatalf("%s: %d nodes, incarnation %d (was %d), unconfirmed %v", s.host, now.Nodes.Len(), now.Incarnation,
						before.Incarnation, now.Unconfirmed)
				}
				if now.Index <= before.Index || now.Now < before.Now {
					t.Errorf("went back: index %d after %d, time %d after %d", now.Index, before.Index, now.Now, before.Now)
				}
			}
			r.mustRegister(fmt.Sprintf("again%d", round))
		}
		// The restored state survives a restart of all servers.
		for _, s := range r.running() {
			s.stop()
		}
		for i := 1; i <= 3; i++ {
			r.start(i, nil)
		}
		if got := r.leader(20 * time.Second).machine.State(); got.Nodes.Len() != 2 ||
			got.Incarnation != before.Incarnation+2 {
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
			code model.Code
		}{
			"nothing":           {nil, model.CodeInvalid},
			"a text":            {[]byte("hello, this is no snapshot at all"), model.CodeInvalid},
			"one cut short":     {saved.Bytes()[:saved.Len()-5], model.CodeInvalid},
			"a flipped bit":     {flipped, model.CodeInvalid},
			"another cluster's": {foreign.Bytes(), model.CodeConflict},
		} {
			if err := leader.Restore(ctx, bytes.NewReader(c.data)); !errors.Is(err, &model.Error{Code: c.code}) {
				t.Errorf("%s: %v, want %s", what, err, c.code)
			}
		}
		if fsm.Digest(leader.machine.State()) != digest {
			t.Error("a refused snapshot changed the state")
		}
		for _, s := range r.running() {
			if s != leader {
				if err := s.Restore(ctx, bytes.NewReader(saved.Bytes())); !errors.Is(err, &model.Error{Code: model.CodeNoLeader}) {
					t.Errorf("at a follower: %v", err)
				}
			}
		}
	})
}

// If servers keep few entries, a server that was down catches up with a snapshot, and so does a new one.
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

// A restore waits until raft has written the snapshot that it is writing, and raft begins no snapshot during a restore.
// Otherwise raft would take the older snapshot for the newest, and send the restored state to followers repeatedly.
func TestRestoreWhileASnapshotIsWritten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		r.mustRegister("kept")
		leader := r.leader(time.Second)
		var saved bytes.Buffer
		if err := leader.Save(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		r.mustRegister("later")
		writing, err := leader.fsm.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		restored := make(chan error, 1)
		go func() { restored <- leader.Restore(context.Background(), bytes.NewReader(saved.Bytes())) }()
		time.Sleep(10 * time.Second)
		if got := leader.machine.State(); got.Unconfirmed {
			t.Error("the state was restored while raft wrote a snapshot")
		}
		writing.Release()
		if err := <-restored; err != nil {
			t.Fatal(err)
		}
		resume, err := leader.fsm.pauseSnapshots(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leader.fsm.Snapshot(); !errors.Is(err, raft.ErrNothingNewToSnapshot) {
			t.Errorf("a snapshot began during a restore: %v", err)
		}
		resume()
		if err := leader.raft.Snapshot().Error(); err != nil {
			t.Errorf("a snapshot after the restore: %v", err)
		}
		r.mustRegister("again")
		r.agree(30 * time.Second)
	})
}

// raft limits the log by the number of entries. If entries are large, a snapshot is taken earlier, and fewer entries
// are kept before it.
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
		if got := leader.disk.store.size.appended(); got < 150_000 {
			t.Fatalf("only %d bytes were written", got)
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

// If raft's own snapshots keep the log short, no snapshot is taken early, however many bytes were appended in all.
func TestShortLogIsLeftAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		leader := r.start(1, func(c *Config) {
			c.BootstrapExpect, c.Gossip.Join, c.Raft.MaxLogBytes = 1, nil, 150_000
			fewLogs(c)
		})
		r.leader(10 * time.Second)
		for i := range 1000 {
			r.mustRegister(fmt.Sprintf("n%04d", i))
		}
		eventually(t, time.Minute, "a short log", func() bool {
			first, err := leader.disk.store.inner.FirstIndex()
			return err == nil && leader.raft.LastIndex()-first < 20
		})
		time.Sleep(2 * logCheck)
		if got := leader.disk.store.size.appended(); got < 150_000 {
			t.Errorf("a snapshot was taken early: %d bytes are counted since", got)
		}
	})
}

// While leadership is handed to a server that needs a snapshot, raft tries to read one again and again without a pause.
// If no snapshot can be read, these attempts must not use a whole processor. In a bubble, they would stop fake time.
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
		// The second server has had no failed requests. After failures, raft would pause between its attempts.
		if err := first.TransferLeader(ctx, second.ID()); err != nil {
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
