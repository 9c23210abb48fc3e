package journal_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/agent/journal"
	"github.com/outspan/outspan/model"
)

func open(t *testing.T, path string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(path, journal.SyncEach)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, code model.Code) {
	t.Helper()
	if !errors.Is(err, &model.Error{Code: code}) {
		t.Fatalf("error = %v, want code %s", err, code)
	}
}

func text(all map[string][]byte) map[string]string {
	m := make(map[string]string)
	for k, v := range all {
		m[k] = string(v)
	}
	return m
}

func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path)
	must(t, j.Put("a", []byte("1")))
	must(t, j.Put("b", []byte("2")))
	must(t, j.Put("a", []byte("3")))
	must(t, j.Delete("b"))
	must(t, j.Delete("never was"))
	must(t, j.Write(journal.Op{Key: "c", Value: []byte("4")}, journal.Op{Key: "d", Value: nil},
		journal.Op{Key: "c", Delete: true}))
	want := map[string]string{"a": "3", "d": ""}
	for range 3 {
		if diff := cmp.Diff(want, text(j.All())); diff != "" {
			t.Fatal(diff)
		}
		must(t, j.Close())
		j = open(t, path)
	}
	if v, ok := j.Get("a"); !ok || string(v) != "3" {
		t.Fatalf("a = %q, %v", v, ok)
	}
	if _, ok := j.Get("b"); ok {
		t.Fatal("b came back")
	}
}

func TestValuesAreCopies(t *testing.T) {
	j := open(t, filepath.Join(t.TempDir(), "journal"))
	v := []byte("old")
	must(t, j.Put("k", v))
	v[0] = 'X'
	got, _ := j.Get("k")
	got[1] = 'X'
	j.All()["k"][2] = 'X'
	if now, _ := j.Get("k"); string(now) != "old" {
		t.Fatalf("the journal shares memory with its callers: %q", now)
	}
}

// history writes some records and returns the file's content. ends and states have the file's size and the journal's
// values, before the first record and after each record.
func history(t *testing.T, path string) (content []byte, ends []int64, states []map[string]string) {
	t.Helper()
	j := open(t, path)
	note := func() {
		st, err := os.Stat(path)
		must(t, err)
		ends, states = append(ends, st.Size()), append(states, text(j.All()))
	}
	note()
	for i := range 12 {
		switch i % 4 {
		case 3:
			must(t, j.Delete(fmt.Sprint("key", i-2)))
		case 2:
			must(t,
				j.Write(journal.Op{Key: "pair", Value: fmt.Append(nil, i)}, journal.Op{Key: "twin", Value: fmt.Append(nil, i)}))
		default:
			must(t, j.Put(fmt.Sprint("key", i), []byte(strings.Repeat("v", i*3))))
		}
		note()
	}
	must(t, j.Close())
	content, err := os.ReadFile(path)
	must(t, err)
	return content, ends, states
}

// A journal that a crash cut off has all records before the cut. If the cut is within the content of a new journal,
// Open refuses the file as damaged. No crash leaves such a file, because a journal gets its name only when that content
// is complete.
func TestCutAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	content, ends, states := history(t, filepath.Join(dir, "whole"))
	path := filepath.Join(dir, "cut")
	for n := 0; n <= len(content); n++ {
		must(t, os.WriteFile(path, content[:n], 0o600))
		j, err := journal.Open(path, journal.SyncNever)
		if int64(n) < ends[0] {
			wantCode(t, err, journal.CodeDamaged)
			continue
		}
		if err != nil {
			t.Fatalf("cut at %d of %d: %v", n, len(content), err)
		}
		last := 0
		for i, end := range ends {
			if end <= int64(n) {
				last = i
			}
		}
		if diff := cmp.Diff(states[last], text(j.All())); diff != "" {
			t.Fatalf("cut at %d: %s", n, diff)
		}
		// The journal must work as if no crash had happened.
		must(t, j.Put("after", []byte("crash")))
		must(t, j.Close())
		j, err = journal.Open(path, journal.SyncNever)
		must(t, err)
		if v, _ := j.Get("after"); string(v) != "crash" {
			t.Fatalf("cut at %d: what was written after it is lost", n)
		}
		must(t, j.Close())
	}
}

// A file with a damaged byte is refused with a code, unless the byte is in the last record. A damaged last record is
// dropped, because it looks like a write that was cut off.
func TestFlipEveryByte(t *testing.T) {
	dir := t.TempDir()
	content, ends, states := history(t, filepath.Join(dir, "whole"))
	path := filepath.Join(dir, "flipped")
	lastRecord := ends[len(ends)-2]
	for n := range content {
		for _, mask := range []byte{0x01, 0x80, 0xFF} {
			broken := append([]byte(nil), content...)
			broken[n] ^= mask
			must(t, os.WriteFile(path, broken, 0o600))
			j, err := journal.Open(path, journal.SyncNever)
			if int64(n) < lastRecord {
				wantCode(t, err, journal.CodeDamaged)
				if left, rerr := os.ReadFile(path); rerr != nil || !cmp.Equal(left, broken) {
					t.Fatalf("flip at %d: the damaged file was changed", n)
				}
				continue
			}
			if err != nil {
				t.Fatalf("flip at %d in the last record: %v", n, err)
			}
			if diff := cmp.Diff(states[len(states)-2], text(j.All())); diff != "" {
				t.Fatalf("flip at %d: %s", n, diff)
			}
			must(t, j.Close())
		}
	}
}

// Some file systems leave blocks of zeros at the end of a file after a power cut. The journal ignores them.
func TestZeroTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	content, _, states := history(t, path)
	must(t, os.WriteFile(path, append(content, make([]byte, 5000)...), 0o600))
	if diff := cmp.Diff(states[len(states)-1], text(open(t, path).All())); diff != "" {
		t.Fatal(diff)
	}
}

func TestCompaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := journal.Open(path, journal.SyncNever)
	must(t, err)
	want := make(map[string]string)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 30_000 {
		k := fmt.Sprint("k", rng.IntN(3000))
		if rng.IntN(10) == 0 {
			delete(want, k)
			must(t, j.Delete(k))
			continue
		}
		want[k] = fmt.Sprint("value ", i)
		must(t, j.Put(k, []byte(want[k])))
	}
	st, err := os.Stat(path)
	must(t, err)
	if st.Size() > 500_000 { // 30,000 records are over 1 MB
		t.Fatalf("file has %d bytes for %d live values", st.Size(), len(want))
	}
	must(t, j.Close())
	if diff := cmp.Diff(want, text(open(t, path).All())); diff != "" {
		t.Fatal(diff)
	}
}

// A crash during a compaction leaves a second file. Open ignores that file, and the next compaction overwrites it.
func TestLeftoverOfCompaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	_, _, states := history(t, path)
	must(t, os.WriteFile(path+".new", []byte("half a journ"), 0o600))
	j := open(t, path)
	if diff := cmp.Diff(states[len(states)-1], text(j.All())); diff != "" {
		t.Fatal(diff)
	}
	for range 2000 {
		must(t, j.Put("big", make([]byte, 200)))
	}
	if st, err := os.Stat(path); err != nil || st.Size() > 200_000 {
		t.Fatalf("not compacted over the leftover: %v, %v", st.Size(), err)
	}
}

func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path)
	_, err := journal.Open(path, journal.SyncEach)
	wantCode(t, err, journal.CodeLocked)
	must(t, j.Close())
	open(t, path)
}

func TestClosedRefuses(t *testing.T) {
	j := open(t, filepath.Join(t.TempDir(), "journal"))
	must(t, j.Close())
	wantCode(t, j.Put("a", nil), journal.CodeFailed)
	must(t, j.Close())
}

func TestManyWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, err := journal.Open(path, journal.SyncNever)
	must(t, err)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 100 {
				if err := j.Put(fmt.Sprint(w, "/", i), []byte("x")); err != nil {
					t.Error(err)
				}
				j.All()
			}
		})
	}
	wg.Wait()
	must(t, j.Close())
	if n := len(open(t, path).All()); n != 800 {
		t.Fatalf("%d of 800 values are there", n)
	}
}

// On a full disk, a write that does not fit is refused, and all earlier writes stay. The journal works again once there
// is room.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to mount a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("skipped: no right to mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	path := filepath.Join(dir, "journal")
	j := open(t, path)
	want := make(map[string]string)
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		k := fmt.Sprint("k", i)
		if err = j.Put(k, make([]byte, 1500)); err == nil {
			want[k] = string(make([]byte, 1500))
		}
	}
	wantCode(t, err, journal.CodeFailed)
	if diff := cmp.Diff(want, text(j.All())); diff != "" {
		t.Fatal(diff)
	}
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT, "size=256k"))
	must(t, j.Put("room", []byte("again")))
	want["room"] = "again"
	must(t, j.Close())
	if diff := cmp.Diff(want, text(open(t, path).All())); diff != "" {
		t.Fatal(diff)
	}
	must(t, j.Close())
}

// The disk takes a write and then fails to sync it, as a thin volume does when it has run out of room. The write is
// refused, so a restarted agent must not find it.
func TestFailedSync(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to mount small file systems")
	}
	small, dir := t.TempDir(), t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("skipped: no right to mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(small, unix.MNT_DETACH) })
	image := filepath.Join(small, "image")
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 4<<20))
	for _, command := range [][]string{{"mkfs.ext2", "-q", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("skipped: no file system in a file is possible: %v: %s", err, out)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	path := filepath.Join(dir, "journal")
	j := open(t, path)
	must(t, j.Put("kept", []byte("1")))
	must(t, exec.Command("sync", "-f", path).Run())
	fill, err := os.Create(filepath.Join(small, "fill"))
	must(t, err)
	for _, size := range []int{64 << 10, 4 << 10} {
		for err = nil; err == nil; {
			_, err = fill.Write(make([]byte, size))
		}
	}
	must(t, fill.Close())
	wantCode(t, j.Put("refused", make([]byte, 128<<10)), journal.CodeFailed)
	_ = j.Close() // its sync may fail again
	if diff := cmp.Diff(map[string]string{"kept": "1"}, text(open(t, path).All())); diff != "" {
		t.Error(diff)
	}
}
