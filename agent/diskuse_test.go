package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const mib = 1 << 20

// putMiB writes a file of the given size in MiB, and returns its path.
func putMiB(t *testing.T, dir, name string, size int) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, make([]byte, size*mib), 0o644))
	return path
}

// measured returns the space that a directory takes, in whole MiB, and whether only a part of it was measured.
func measured(t *testing.T, w *diskWalk, dir string) (wholeMiB int64, partial bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	use, err := w.measure(ctx, dir)
	must(t, err)
	return use.bytes / mib, use.partial
}

func newWalk() *diskWalk {
	return &diskWalk{left: diskEntries, seen: map[uint64]bool{}, batch: time.Now()}
}

// The measured size of a directory is the space allocated in it. Holes take no space, and a file with two names is
// measured once. Targets of symbolic links and the content of a FIFO are not measured.
func TestMeasureDisk(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	putMiB(t, dir, "a", 3)
	twice := putMiB(t, dir, "deep/er/b", 2)
	must(t, os.Link(twice, filepath.Join(dir, "b2")))
	must(t, os.Truncate(putMiB(t, dir, "sparse", 0), 1<<40))
	putMiB(t, other, "big", 8)
	must(t, os.Symlink(other, filepath.Join(dir, "dir")))
	must(t, os.Symlink(filepath.Join(other, "big"), filepath.Join(dir, "file")))
	must(t, os.Symlink(dir, filepath.Join(dir, "deep", "loop")))
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	if got, partial := measured(t, newWalk(), dir); got != 5 || partial {
		t.Errorf("it takes %d MiB, partly: %v", got, partial)
	}
	if got, partial := measured(t, newWalk(), filepath.Join(dir, "none")); got != 0 || partial {
		t.Errorf("a directory that does not exist takes %d MiB, partly: %v", got, partial)
	}
	for _, name := range []string{"dir", "fifo", "a"} {
		if _, err := measureDisk(t.Context(), filepath.Join(dir, name)); err == nil {
			t.Errorf("%s was measured", name)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := measureDisk(ended, dir); err == nil {
		t.Error("it did not end with its context")
	}
}

// A measurement has limits on entries, depth and remembered hard links. If it reaches any of them, its result is
// partial.
func TestMeasureDiskIsBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range 1000 {
		putMiB(t, dir, fmt.Sprint("d/", i), 0)
	}
	w := newWalk()
	w.left = 1002 // 1000 files, d, and one to spare
	if _, partial := measured(t, w, dir); partial || w.left != 1 {
		t.Errorf("partly: %v, with %d entries left", partial, w.left)
	}
	w = newWalk()
	w.left = 500
	if _, partial := measured(t, w, dir); !partial || w.left != 0 {
		t.Errorf("partly: %v, with %d entries left", partial, w.left)
	}
	deep := t.TempDir()
	putMiB(t, deep, strings.Repeat("d/", diskDepth-1)+"f", 1)
	if got, partial := measured(t, newWalk(), deep); got != 1 || partial {
		t.Errorf("at the largest depth it takes %d MiB, partly: %v", got, partial)
	}
	putMiB(t, deep, strings.Repeat("d/", diskDepth)+"g", 4)
	if got, partial := measured(t, newWalk(), deep); got != 1 || !partial {
		t.Errorf("below the largest depth it takes %d MiB, partly: %v", got, partial)
	}
	linked := t.TempDir()
	must(t, os.Link(putMiB(t, linked, "a", 1), filepath.Join(linked, "b")))
	w = newWalk()
	for i := range diskLinks {
		w.seen[uint64(1)<<60+uint64(i)] = true
	}
	if got, partial := measured(t, w, linked); got != 0 || !partial {
		t.Errorf("with too many links it takes %d MiB, partly: %v", got, partial)
	}
}

// Other file systems that are mounted in a directory are not measured.
func TestMeasureDiskStaysOnItsFileSystem(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to mount a small file system")
	}
	dir := t.TempDir()
	inner := filepath.Join(dir, "inner")
	must(t, os.Mkdir(inner, 0o755))
	if err := unix.Mount("tmpfs", inner, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("skipped: no right to mount a small file system: %v", err)
	}
	defer func() { must(t, unix.Unmount(inner, unix.MNT_DETACH)) }()
	putMiB(t, inner, "a", 4)
	putMiB(t, dir, "b", 2)
	if got, partial := measured(t, newWalk(), dir); got != 2 || partial {
		t.Errorf("it takes %d MiB, partly: %v", got, partial)
	}
}
