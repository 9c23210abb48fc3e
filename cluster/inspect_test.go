package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// stoppedServer runs a single server that takes snapshots often, registers 30 nodes, and stops it. It returns a copy of
// the server's directory, and its last state. trailing is the number of entries kept before each snapshot.
func stoppedServer(t *testing.T, trailing uint64) (dir string, last fsm.State) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "kept") // the server's own directory is removed with the bubble
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		s := r.start(1, func(c *Config) {
			c.BootstrapExpect = 1
			c.Gossip.Join = nil
			c.Raft.SnapshotInterval, c.Raft.SnapshotThreshold, c.Raft.TrailingLogs = time.Second, 5, trailing
		})
		for i := range 30 {
			r.mustRegister(fmt.Sprintf("n%02d", i))
			time.Sleep(200 * time.Millisecond)
		}
		if err := s.ReadBarrier(context.Background()); err != nil {
			t.Fatal(err)
		}
		last = s.machine.State()
		s.stop()
		if err := os.CopyFS(dir, os.DirFS(s.dir)); err != nil {
			t.Fatal(err)
		}
	})
	return dir, last
}

func openStopped(t *testing.T, dir string) *StoppedDir {
	t.Helper()
	d, err := OpenStopped(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// fingerprint maps each file of a directory to its modification time, mode and checksum.
func fingerprint(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		files[path] = fmt.Sprint(info.ModTime(), info.Mode(), sha256.Sum256(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Each record in the log of a stopped server can be read. A replay gives the server's last state, and the states of its
// snapshots. Reading does not change the directory.
func TestInspectStoppedServer(t *testing.T) {
	dir, last := stoppedServer(t, 1000)
	before := fingerprint(t, dir)
	d := openStopped(t, dir)
	bounds, err := d.Bounds()
	if err != nil || bounds.First != 1 || bounds.Last < last.Index {
		t.Fatalf("the log %s, %v; the state is at %d", bounds, err, last.Index)
	}
	kinds := map[RecordKind]int{}
	for r, err := range d.Records(0, 1<<60) {
		if err != nil || r.Err != nil || r.Term == 0 || r.Time.IsZero() != (r.Index == 1) || !r.Kind.Valid() {
			t.Fatalf("%+v, %v", r, err)
		}
		kinds[r.Kind]++
		if r.Kind == RecordConfiguration && (len(r.Servers) != 1 || r.Servers[0].ID != d.Server().ID || !r.Servers[0].Voter ||
			strings.Contains(r.Servers[0].Address, "@")) {
			t.Errorf("servers %+v, this is %+v", r.Servers, d.Server())
		}
	}
	if kinds[RecordCommand] < 31 || kinds[RecordNoop] == 0 || kinds[RecordConfiguration] == 0 ||
		kinds[RecordBarrier] == 0 {
		t.Errorf("records: %v", kinds)
	}
	if s := d.Server(); s.ClusterName != "test" || s.ClusterID != last.Cluster.ID || s.Term == 0 || s.VotedFor == "" {
		t.Errorf("server %+v", s)
	}

	snapshots := d.Snapshots()
	if len(snapshots) < 2 || !slices.IsSortedFunc(snapshots, func(a, b StoredSnapshot) int {
		return int(b.Index) - int(a.Index)
	}) {
		t.Fatalf("snapshots %+v", snapshots)
	}
	ctx := context.Background()
	whole, err := d.Replay(ctx, 0)
	if err != nil || fsm.Digest(whole.State) != fsm.Digest(last) || whole.From != snapshots[0].File {
		t.Fatalf("the newest state is not the server's: %v\n%s", err,
			cmp.Diff(fsm.Diff(last, whole.State), []fsm.RowChange(nil)))
	}
	// Rebuild every state from the beginning of the log. Each snapshot must equal the state at its index.
	state := fsm.NewState()
	at := map[uint64]string{}
	for r := range d.Records(1, bounds.Last) {
		if state, _, err = Step(state, r); err != nil {
			t.Fatal(err)
		}
		at[r.Index] = fsm.Digest(state)
	}
	for _, s := range snapshots {
		got, err := s.State()
		if err != nil || fsm.Digest(got) != at[s.Index] || len(s.Servers) != 1 {
			t.Errorf("snapshot of %d: %v, servers %v, %v", s.Index, err, s.Servers, fsm.Diff(state, got))
		}
	}
	for _, index := range []uint64{1, snapshots[len(snapshots)-1].Index - 1, snapshots[0].Index,
		snapshots[0].Index - 1, bounds.Last} {
		got, err := d.Replay(ctx, index)
		if err != nil || fsm.Digest(got.State) != at[index] || got.Index != index {
			t.Errorf("the state at %d: %v", index, err)
		}
	}
	if _, err := d.Replay(ctx, bounds.Last+1); !errors.Is(err, &model.Error{Code: model.CodeNotFound}) {
		t.Errorf("beyond the end: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, fingerprint(t, dir)); diff != "" {
		t.Error("looking changed the directory")
	}
}

// If the log does not reach back far enough for a replay, the error names the command that lists the existing states.
func TestInspectShortLog(t *testing.T) {
	dir, last := stoppedServer(t, 3)
	d := openStopped(t, dir)
	bounds, _ := d.Bounds()
	if bounds.First < 2 {
		t.Fatalf("the log %s", bounds)
	}
	_, err := d.Replay(context.Background(), 2)
	refused(t, err, model.CodeNotFound, "entry 2", "outspan debug snapshot")
	_, err = d.Record(1)
	refused(t, err, model.CodeNotFound, "entry 1", fmt.Sprint(bounds.Last))
	got, err := d.Replay(context.Background(), 0)
	if err != nil || fsm.Digest(got.State) != fsm.Digest(last) {
		t.Errorf("the newest state: %v", err)
	}
}

func refused(t *testing.T, err error, code model.Code, parts ...string) {
	t.Helper()
	if !errors.Is(err, &model.Error{Code: code}) {
		t.Errorf("got %v, want %s", err, code)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}

func TestInspectRefuses(t *testing.T) {
	dir := t.TempDir()
	_, err := OpenStopped(filepath.Join(dir, "none"))
	refused(t, err, model.CodeNotFound, "none", "data_dir")
	_, err = OpenStopped(dir)
	refused(t, err, model.CodeInvalid, "raft.db", "data_dir")
	store, err := OpenBolt(filepath.Join(dir, fileLog))
	if err != nil {
		t.Fatal(err)
	}
	_, err = OpenStopped(dir)
	refused(t, err, model.CodeConflict, "is running", "stop it first", "snapshot save")
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	d := openStopped(t, dir) // its log is empty
	if bounds, err := d.Bounds(); err != nil || bounds != (LogBounds{}) {
		t.Errorf("bounds %v, %v", bounds, err)
	}
	if got, err := d.Replay(context.Background(), 0); err != nil || fsm.Digest(got.State) != fsm.Digest(fsm.NewState()) {
		t.Errorf("the state before the first entry: %v", err)
	}
}

// The error for a damaged entry names the entry. The other entries can be read, and so can the states before the first
// damaged entry. The error for an entry of a newer program has the code needs_format.
func TestInspectDamagedEntries(t *testing.T) {
	dir, _ := stoppedServer(t, 1000)
	if err := os.RemoveAll(filepath.Join(dir, dirSnapshots)); err != nil {
		t.Fatal(err)
	}
	store, err := OpenBolt(filepath.Join(dir, fileLog))
	if err != nil {
		t.Fatal(err)
	}
	last, err := store.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	newer, err := fsm.EncodeEntry(fsm.Entry{Format: 1})
	if err != nil {
		t.Fatal(err)
	}
	newer = bytes.Replace(newer, []byte{0xa4, 1, 1}, []byte{0xa4, 1, 9}, 1)
	err = errors.Join(
		store.StoreLog(&raft.Log{Index: 20, Term: 1, Data: []byte("not an entry")}),
		store.DeleteRange(22, 22),
		store.DeleteRange(28, 30),
		store.StoreLog(&raft.Log{Index: 24, Term: 1, Type: raft.LogConfiguration, Data: []byte{0xc1}}),
		store.StoreLog(&raft.Log{Index: 25, Term: 1, Type: raft.LogType(77)}),
		store.StoreLog(&raft.Log{Index: 26, Term: 1, Data: newer}),
		store.Close(),
	)
	if err != nil {
		t.Fatal(err)
	}
	d := openStopped(t, dir)
	bad := map[uint64]RecordKind{}
	n := uint64(0)
	for r, err := range d.Records(1, last) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if r.Err != nil {
			bad[r.Index] = r.Kind
			want := model.CodeInvalid
			if r.Index == 25 || r.Index == 26 {
				want = model.CodeNeedsFormat
			}
			refused(t, r.Err, want, fmt.Sprintf("entry %d", r.Index), d.logFile())
		}
	}
	want := map[uint64]RecordKind{20: RecordDamaged, 22: RecordDamaged, 24: RecordDamaged, 25: RecordUnknown,
		26: RecordUnknown, 28: RecordDamaged}
	if diff := cmp.Diff(want, bad); diff != "" || n != last-2 {
		t.Errorf("%d records; damaged (-want +got):\n%s", n, diff)
	}
	got, err := d.Replay(context.Background(), 0)
	refused(t, err, model.CodeInvalid, "entry 20", "--at 19")
	if got.Index != 19 || got.State.Nodes.Len() == 0 {
		t.Errorf("it came to %d", got.Index)
	}
	if _, err := d.Replay(context.Background(), 19); err != nil {
		t.Error(err)
	}
}

// The error for a damaged snapshot names the snapshot's file. A replay skips the damaged snapshot and begins with the
// next older one.
func TestInspectDamagedSnapshot(t *testing.T) {
	dir, last := stoppedServer(t, 1000)
	good := openStopped(t, dir).Snapshots()
	damage := func(path string, edit func([]byte) []byte) {
		t.Helper()
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, edit(data), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	flip := func(data []byte) []byte { data[len(data)/2] ^= 4; return data }
	damage(good[0].File, flip)
	d := openStopped(t, dir)
	_, err := d.Snapshots()[0].State()
	refused(t, err, model.CodeInvalid, good[0].File, "does not match its checksum")
	r, err := d.Replay(context.Background(), 0)
	if err != nil || r.From != good[1].File || len(r.Skipped) != 1 || fsm.Digest(r.State) != fsm.Digest(last) {
		t.Errorf("from %s, skipped %v, %v", r.From, r.Skipped, err)
	}
	damage(good[0].File, flip)
	damage(good[0].File, func(data []byte) []byte { return data[:len(data)-9] })
	_, err = d.Snapshots()[0].State()
	refused(t, err, model.CodeInvalid, good[0].File, "ends too early")
	damage(filepath.Join(filepath.Dir(good[1].File), snapshotMeta), func([]byte) []byte { return []byte("{") })
	list := d.Snapshots()
	refused(t, list[len(list)-1].Err, model.CodeInvalid, snapshotMeta, good[1].File)
	if _, err := ReadStateFile(good[1].File); err != nil {
		t.Errorf("its state is whole: %v", err)
	}
}

// If the log's file is cut short or a bit of it has changed, reading may return errors, but never panics. The directory
// can still be opened, and its snapshots are listed. A cut is noticed, unless it only took pages that are free, so that
// all records are still there.
func TestInspectSurvivesDamagedFiles(t *testing.T) {
	dir, _ := stoppedServer(t, 1000)
	path := filepath.Join(dir, fileLog)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	look := func(what string, data []byte) (failed bool, records []uint64) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := OpenStopped(dir)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return true, nil
		}
		defer func() { _ = d.Close() }()
		d.Server()
		for r, err := range d.Records(0, 1<<60) {
			records = append(records, r.Index)
			if failed = failed || err != nil || r.Err != nil; err == nil && r.Err == nil && !r.Kind.Valid() {
				t.Errorf("%s: %+v", what, r)
			}
		}
		if len(d.Snapshots()) == 0 {
			t.Errorf("%s: its snapshots are not seen", what)
		}
		return failed, records
	}
	failed, all := look("nothing", whole)
	if failed || len(all) < 30 {
		t.Fatalf("the whole log has %d entries, damaged: %v", len(all), failed)
	}
	for _, size := range []int{0, 1, 4096, 8192, len(whole) / 2, len(whole) / 4} {
		if failed, left := look(fmt.Sprintf("cut to %d bytes", size), whole[:size]); !failed && !slices.Equal(left, all) {
			t.Errorf("cut to %d of %d bytes: nobody noticed that %d of %d entries are left", size, len(whole), len(left),
				len(all))
		}
	}
	noticed, step := 0, max(len(whole)/400, 1)
	for at := 0; at < len(whole); at += step {
		data := bytes.Clone(whole)
		data[at] ^= 1 << (at % 8)
		if failed, _ := look(fmt.Sprintf("byte %d flipped", at), data); failed {
			noticed++
		}
	}
	t.Logf("%d bytes, a flipped one in %d noticed %d times", len(whole), step, noticed)
}
