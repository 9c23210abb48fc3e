package memdisk_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/outspan/outspan/internal/testbed/memdisk"
)

func newDisk(t *testing.T, seed uint64) *memdisk.Disk {
	t.Helper()
	const memory = "/dev/shm"                            // in memory, because syncs to a real disk are slow
	dir, err := os.MkdirTemp(memory, "outspan-memdisk-") //nolint:usetesting // t.TempDir would be on a real disk
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return memdisk.New(dir, rand.New(rand.NewPCG(seed, seed)))
}

// open opens raft's log store on the disk d, with the options that the product uses.
func open(t *testing.T, d *memdisk.Disk) *memdisk.Log {
	t.Helper()
	must(t, os.MkdirAll(d.Dir(), 0o700))
	path := filepath.Join(d.Dir(), "raft.db")
	inner, err := raftboltdb.New(raftboltdb.Options{Path: path,
		BoltOptions: &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}})
	must(t, err)
	l := d.Open(path, inner)
	t.Cleanup(func() { l.Close() })
	return l
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// entry returns a log entry whose content shows whether it is complete.
func entry(index uint64) *raft.Log {
	return &raft.Log{Index: index, Term: 1, Data: []byte(strings.Repeat(fmt.Sprintf("%d,", index), 1+int(index*37%900)))}
}

// Acknowledged writes survive any number of power losses. A write that was in progress at a power loss is stored
// completely or not at all.
func TestPowerLoss(t *testing.T) {
	reports := map[string]int{}
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			d := newDisk(t, seed)
			var acked uint64
			for range 4 {
				l := open(t, d)
				last := check(t, l, acked)
				d.Slow(time.Millisecond)
				until := time.Duration(random.IntN(30_000)) * time.Microsecond
				var wg sync.WaitGroup
				var lost atomic.Bool
				wg.Go(func() {
					for next := last + 1; !lost.Load(); {
						batch := []*raft.Log{entry(next)}
						for range random.IntN(20) {
							batch = append(batch, entry(next+uint64(len(batch))))
						}
						if err := l.StoreLogs(batch); err != nil {
							t.Error(err)
							return
						}
						next += uint64(len(batch))
						if !lost.Load() {
							acked = next - 1
						}
					}
				})
				wg.Go(func() {
					for !lost.Load() && l.SetUint64([]byte("term"), 7) == nil {
						continue
					}
				})
				time.Sleep(until)
				lost.Store(true)
				report, err := d.PowerLoss()
				must(t, err)
				reports[report]++
				wg.Wait()
			}
			check(t, open(t, d), acked)
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for _, fate := range []string{"lost", "torn", "torn at its meta page", "written"} {
		found := false
		for report := range reports {
			found = found || strings.Contains(report+" ", ": "+fate+" ")
		}
		if !found {
			t.Errorf("no write was %s: %v", fate, reports)
		}
	}
}

// check checks that the log has all entries up to the index acked, and that each entry is complete. It returns the last
// index of the log.
func check(t *testing.T, l *memdisk.Log, acked uint64) uint64 {
	t.Helper()
	last, err := l.LastIndex()
	must(t, err)
	if last < acked {
		t.Errorf("the last entry is %d, %d was acknowledged", last, acked)
	}
	for i := uint64(1); i <= last; i++ {
		var got raft.Log
		must(t, l.GetLog(i, &got))
		if want := entry(i); string(got.Data) != string(want.Data) {
			t.Errorf("entry %d is %q", i, got.Data)
		}
	}
	return last
}

// The old process continues after a power loss. The next process must not see anything that the old process writes from
// then on.
func TestNothingIsWrittenWithoutPower(t *testing.T) {
	d := newDisk(t, 1)
	l := open(t, d)
	must(t, l.StoreLog(entry(1)))
	old := d.Dir()
	_, err := d.PowerLoss()
	must(t, err)
	if d.Dir() == old {
		t.Fatal("the machine starts on the directory of the process that lost its power")
	}
	must(t, l.StoreLog(entry(2)))
	must(t, os.WriteFile(filepath.Join(old, "late"), nil, 0o600))
	if last := check(t, open(t, d), 1); last != 1 {
		t.Errorf("the last entry is %d", last)
	}
	if _, err := os.Stat(filepath.Join(d.Dir(), "late")); err == nil {
		t.Error("a file was written without power")
	}
	d.Wipe()
	if _, err := os.Stat(d.Dir()); err == nil {
		t.Error("a new disk has files")
	}
}

func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t, 1)
		l := open(t, d)
		d.Fail(syscall.EIO)
		if err := l.StoreLog(entry(1)); !errors.Is(err, syscall.EIO) {
			t.Errorf("a write to a broken disk: %v", err)
		}
		d.Fail(nil)
		d.Slow(time.Second)
		began := time.Now()
		must(t, l.StoreLog(entry(1)))
		if took := time.Since(began); took < time.Second || took > 2*time.Second {
			t.Errorf("a slow write took %s", took)
		}
		d.Slow(0)
		d.Hang()
		time.AfterFunc(time.Hour, d.Resume)
		began = time.Now()
		must(t, l.SetUint64([]byte("term"), 1))
		if took := time.Since(began); took != time.Hour {
			t.Errorf("a write that hangs for an hour took %s", took)
		}
		d.Hang()
		time.AfterFunc(time.Hour, func() {
			if _, err := d.PowerLoss(); err != nil {
				t.Error(err)
			}
		})
		must(t, l.SetUint64([]byte("term"), 2)) // the write succeeds after the power loss, so that the old process can exit
	})
}

// On a full disk, the free space depends on the machine's own files, so deleting a file frees space.
func TestFullDisk(t *testing.T) {
	d := newDisk(t, 1)
	l := open(t, d)
	ballast := filepath.Join(d.Dir(), "ballast")
	must(t, os.WriteFile(ballast, make([]byte, 1<<20), 0o600))
	d.Fill(0)
	if err := l.StoreLog(entry(1)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write to a full disk: %v", err)
	}
	must(t, os.Remove(ballast))
	if free, total, _ := d.Space(""); free < 1<<20 || free > total {
		t.Errorf("%d of %d bytes are free after a file of 1 MiB went", free, total)
	}
	must(t, l.StoreLog(entry(1)))
	d.Fill(-1)
	if free, total, _ := d.Space(""); free != total {
		t.Errorf("%d of %d bytes are free", free, total)
	}
}

// A power loss may leave a snapshot unfinished only if the log still has all entries that the snapshot contains.
func TestUnfinishedSnapshot(t *testing.T) {
	lost := 0
	for seed := range uint64(20) {
		for _, first := range []uint64{1, 3} {
			d := newDisk(t, seed)
			l := open(t, d)
			for i := first; i <= 6; i++ {
				must(t, l.StoreLog(entry(i)))
			}
			snap := filepath.Join(d.Dir(), "snapshots", "2-5-1000")
			must(t, os.MkdirAll(snap, 0o700))
			must(t, os.WriteFile(filepath.Join(snap, "state.bin"), []byte("state"), 0o600))
			_, err := d.PowerLoss()
			must(t, err)
			_, err = os.Stat(filepath.Join(d.Dir(), "snapshots", "2-5-1000"))
			switch {
			case err != nil && first > 1:
				t.Fatal("a snapshot was lost whose entries are no longer in the log")
			case err != nil:
				lost++
			}
		}
	}
	if lost == 0 || lost == 20 {
		t.Errorf("%d of 20 snapshots were unfinished", lost)
	}
}
