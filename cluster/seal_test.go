package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// A crash during a snapshot leaves an unfinished directory, which may be as large as the state. The next start removes
// that directory.
func TestUnfinishedSnapshotsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	snaps, err := newSealedSnapshots(dir, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	_, trans := raft.NewInmemTransport("")
	var sinks []raft.SnapshotSink
	for index := range uint64(2) {
		sink, err := snaps.Create(1, 10+index, 1, raft.Configuration{}, 1, trans)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sink.Write([]byte("state")); err != nil {
			t.Fatal(err)
		}
		sinks = append(sinks, sink)
	}
	if err := sinks[0].Close(); err != nil { // the other sink is never closed, as after a crash
		t.Fatal(err)
	}
	names := func() int {
		entries, err := os.ReadDir(filepath.Join(dir, dirSnapshots))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	if n := names(); n != 2 {
		t.Fatalf("%d directories before the start, want the snapshot and the unfinished one", n)
	}
	if snaps, err = newSealedSnapshots(dir, hclog.NewNullLogger()); err != nil {
		t.Fatal(err)
	}
	if list, err := snaps.List(); err != nil || len(list) != 1 || names() != 1 {
		t.Errorf("after the start: %d snapshots, %v, %d directories; want one of each", len(list), err, names())
	}
}

// A snapshot with a seal is used only if no bit of its metadata has changed. A snapshot without a seal is used too.
func TestSealedSnapshots(t *testing.T) {
	dir := t.TempDir()
	snaps, err := newSealedSnapshots(dir, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	_, trans := raft.NewInmemTransport("")
	sink, err := snaps.Create(1, 753913, 121,
		raft.Configuration{Servers: []raft.Server{{ID: "s1", Address: "10.0.0.1:7640"}}}, 12, trans)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Write([]byte("state")); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	counts := func() bool {
		list, err := snaps.List()
		if err != nil {
			t.Fatal(err)
		}
		return len(list) == 1
	}
	if !counts() {
		t.Fatal("what was written does not count")
	}
	path := filepath.Join(dir, dirSnapshots, sink.ID(), snapshotMeta)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(good) {
		bad := append([]byte{}, good...)
		bad[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if counts() {
			t.Fatalf("it counts with bit %d turned: %s", bit, bad)
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil || !counts() {
		t.Fatalf("it does not count as it was: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, dirSnapshots, sink.ID(), fileSeal)); err != nil || !counts() {
		t.Fatalf("it does not count without a seal: %v", err)
	}
}

// If the server believed an index in a snapshot's metadata that is too high, it would skip the entries up to that
// index. But the server notices that the metadata has changed, and begins with the older snapshot.
func TestTurnedIndexOfASnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		few := func(c *Config) {
			fewLogs(c)
			c.BootstrapExpect, c.Raft.TrailingLogs = 1, 1000
			c.Gossip.Join = nil
		}
		s := r.start(1, few)
		metas := func() []string {
			all, err := filepath.Glob(filepath.Join(s.dir, dirSnapshots, "*", snapshotMeta))
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		nodes := 0
		register := func(count int) {
			for range count {
				nodes++
				r.mustRegister(fmt.Sprintf("n%d", nodes))
			}
		}
		register(15)
		eventually(t, time.Minute, "a snapshot", func() bool { return len(metas()) == 1 })
		register(15)
		eventually(t, time.Minute, "another", func() bool { return len(metas()) == 2 })
		register(5)
		s.crash()
		newest := metas()[1]
		text, err := os.ReadFile(newest)
		if err != nil {
			t.Fatal(err)
		}
		turned := regexp.MustCompile(`"Index":\d+`).ReplaceAllFunc(text, func(m []byte) []byte {
			n, err := strconv.Atoi(string(m[len(`"Index":`):]))
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Appendf(nil, `"Index":%d`, n+3)
		})
		if err := os.WriteFile(newest, turned, 0o600); err != nil {
			t.Fatal(err)
		}
		r.start(1, few)
		if got := r.leader(time.Minute).machine.State().Nodes.Len(); got != nodes {
			t.Errorf("%d nodes after the start, %d were registered", got, nodes)
		}
	})
}
