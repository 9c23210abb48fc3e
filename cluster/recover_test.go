package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Two of three servers are lost permanently. The third server is recovered, and continues alone.
func TestRecover(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		for i := range 10 {
			r.mustRegister(fmt.Sprintf("n%d", i))
		}
		r.agree(5 * time.Second)
		survivor := r.running()[1]
		if _, err := Recover(RecoverConfig{DataDir: survivor.dir, Cluster: "test", Address: host(2) + ":7640"}); !errors.Is(
			err, &model.Error{Code: model.CodeConflict}) {
			t.Errorf("recovered a running server: %v", err)
		}
		for _, s := range r.running() {
			s.crash()
		}
		recovered, err := Recover(RecoverConfig{DataDir: survivor.dir, Cluster: "test", Address: host(2) + ":7640"})
		if err != nil {
			t.Fatal(err)
		}
		if recovered.ID != survivor.ID() {
			t.Errorf("recovered %v", recovered.ID)
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
		// The last acknowledged writes may be lost. So epochs must not be used again, and agents must not stop instances that
		// the state lacks.
		if state.Incarnation != recoveryRaise || !state.Unconfirmed {
			t.Errorf("incarnation %d, unconfirmed %v after the recovery; want %d, true", state.Incarnation, state.Unconfirmed,
				recoveryRaise)
		}
		for id, n := range state.Nodes.All() {
			if n.Assigned == 0 && n.Name != "after" {
				t.Errorf("the agent of %s is not told of it", id)
			}
		}
		for range 2 { // a restart doesn't raise the incarnation
			r.running()[0].crash()
			r.start(2, nil)
			r.mustRegister(fmt.Sprint("later", r.running()[0].machine.State().Nodes.Len()))
		}
		if got := r.leader(time.Second).machine.State(); got.Incarnation != recoveryRaise {
			t.Errorf("incarnation %d after restarts, want %d", got.Incarnation, recoveryRaise)
		}
	})
}

// All servers are lost. A new server with another name and address starts with a saved state, and others join it.
func TestRecoverSnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		for i := range 10 {
			r.mustRegister(fmt.Sprintf("n%d", i))
		}
		leader := r.leader(time.Second)
		var saved bytes.Buffer
		if err := leader.Save(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		before := leader.machine.State()
		r.mustRegister("lost")
		for _, s := range r.running() {
			s.crash()
		}
		dir := filepath.Join(t.TempDir(), "fresh", "data")
		recovered, err := Recover(RecoverConfig{DataDir: dir, Cluster: "test", Address: host(4) + ":7640",
			Snapshot: bytes.NewReader(saved.Bytes())})
		if err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		r.servers = map[string]*rigServer{}
		r.mu.Unlock()
		join := func(c *Config) { c.Gossip.Join = []string{host(4) + ":7642"} }
		first := r.start(4, func(c *Config) { c.DataDir = dir; join(c) })
		if first.ID() != recovered.ID {
			t.Errorf("the server is %s, recovered was %s", first.ID(), recovered.ID)
		}
		for i := 5; i <= 6; i++ {
			r.start(i, join)
		}
		eventually(t, time.Minute, "three voters", func() bool { return len(r.leader(time.Minute).voters()) == 3 })
		r.mustRegister("after")
		r.agree(time.Minute)
		state := r.leader(time.Second).machine.State()
		if state.Cluster.ID != before.Cluster.ID || state.Nodes.Len() != 11 || state.Incarnation != recoveryRaise ||
			!state.Unconfirmed {
			t.Errorf("cluster %v with %d nodes, incarnation %d, unconfirmed %v; want %v, 11, 16, true",
				state.Cluster, state.Nodes.Len(), state.Incarnation, state.Unconfirmed, before.Cluster)
		}
		if _, known := state.Nodes.Get("lost"); known {
			t.Error("the state knows what was written after it was saved")
		}
		first.crash() // the others have the whole state
		r.net.Heal()
		r.mustRegister("later")
	})
}

// If something can't be recovered, the error of Recover gives the reason, and the directory stays as it was.
func TestRecoverRefused(t *testing.T) {
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
	empty := func(t *testing.T) string { return t.TempDir() }
	missing := func(t *testing.T) string { return filepath.Join(t.TempDir(), "missing") }
	used := func(t *testing.T) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for name, tt := range map[string]struct {
		dir      func(*testing.T) string
		snapshot []byte
		cluster  string
		want     string
	}{
		"a missing directory":   {missing, nil, "test", "nothing to recover"},
		"an empty directory":    {empty, nil, "test", "nothing to recover"},
		"a snapshot over files": {used, saved.Bytes(), "test", "is not empty: it holds precious"},
		"a snapshot over keys and files": {func(t *testing.T) string {
			dir := used(t)
			if err := os.Mkdir(filepath.Join(dir, "keys"), 0o700); err != nil {
				t.Fatal(err)
			}
			return dir
		}, saved.Bytes(), "test", "is not empty: it holds precious"},
		"half a snapshot":   {missing, saved.Bytes()[:saved.Len()/2], "test", "snapshot"},
		"another cluster's": {missing, saved.Bytes(), "other", `of the cluster "test", not of "other"`},
		"no room for the directory": {func(t *testing.T) string {
			return filepath.Join(used(t), "precious", "data")
		}, saved.Bytes(), "test", "precious"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tt.dir(t)
			before, errBefore := os.ReadDir(dir)
			cfg := RecoverConfig{DataDir: dir, Cluster: tt.cluster, Address: "x:1", Keep: []string{"keys"}}
			if tt.snapshot != nil {
				cfg.Snapshot = bytes.NewReader(tt.snapshot)
			}
			if _, err := Recover(cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
			after, errAfter := os.ReadDir(dir)
			if len(before) != len(after) || (errBefore == nil) != (errAfter == nil) {
				t.Errorf("the directory holds %v (%v) afterwards, %v (%v) before", after, errAfter, before, errBefore)
			}
		})
	}
}

// raft has written the new snapshot when the recovery fails. The error must not say that nothing was changed. A second
// recovery ends what was begun.
func TestRecoverBegunAndNotEnded(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to forbid the removal of files")
	}
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		s := r.start(1, func(c *Config) { c.BootstrapExpect, c.Gossip.Join = 1, nil; fewLogs(c) })
		oldest := ""
		for i := 0; oldest == ""; i++ {
			r.mustRegister(fmt.Sprintf("n%d", i))
			time.Sleep(time.Second)
			if all, err := s.disk.snaps.List(); err == nil && len(all) == snapshotsKept {
				oldest = filepath.Join(s.dir, dirSnapshots, all[snapshotsKept-1].ID)
				s.stop()
			}
		}
		d, err := os.Open(oldest)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		const appendOnly = 0x20 // FS_APPEND_FL: names can't be removed
		if err := unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, appendOnly); err != nil {
			t.Skipf("skipped: the file system can't forbid the removal of files: %v", err)
		}
		again := RecoverConfig{DataDir: s.dir, Cluster: "test", Address: host(1) + ":7640"}
		_, err = Recover(again)
		if cleared := unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, 0); cleared != nil {
			t.Fatal(cleared)
		}
		if err == nil || !strings.Contains(err.Error(), "the recovery was begun and not ended") ||
			strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("recovered with %v", err)
		}
		time.Sleep(time.Second) // the name of a snapshot contains the time
		if _, err := Recover(again); err != nil {
			t.Error(err)
		}
	})
}
