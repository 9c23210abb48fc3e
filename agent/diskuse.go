package agent

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of one measurement.
const (
	diskEntries = 500_000 // files and directories
	diskDepth   = 100     // nested directories; all of them are open at the same time
	diskLinks   = 50_000  // hard-linked files that are remembered, so that each is added once
	diskBatch   = 256     // entries that are visited between two pauses
	diskPause   = time.Millisecond
)

// diskUse is the space that a directory takes on its file system.
type diskUse struct {
	bytes   int64 // allocated on the disk
	partial bool  // the true use may be higher, because a bound was reached or something could not be read
}

// diskWalk is one measurement. It never follows a symbolic link, opens nothing but directories, and stays on one file
// system. After each batch of entries it pauses for at least as long as the batch took.
type diskWalk struct {
	use   diskUse
	dev   uint64
	left  int // entries that may still be visited
	seen  map[uint64]bool
	batch time.Time // when the present batch began
}

// measureDisk returns the space that a directory and everything below it take. For a missing directory it returns 0. It
// returns an error only if ctx ends or the directory itself can't be opened.
func measureDisk(ctx context.Context, dir string) (diskUse, error) {
	w := &diskWalk{left: diskEntries, seen: map[uint64]bool{}, batch: time.Now()}
	return w.measure(ctx, dir)
}

func (w *diskWalk) measure(ctx context.Context, dir string) (diskUse, error) {
	fd, err := openDir(unix.AT_FDCWD, dir)
	if errors.Is(err, unix.ENOENT) {
		return diskUse{}, nil
	}
	if err != nil {
		return diskUse{}, err
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return diskUse{}, err
	}
	w.dev = st.Dev
	w.count(&st)
	w.directory(ctx, f, 1)
	return w.use, ctx.Err()
}

// openDir opens a directory. It refuses other files without opening them, because opening a FIFO would block.
func openDir(at int, name string) (int, error) {
	for {
		fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// directory adds the entries of an open directory, and everything below them, to w.use.
func (w *diskWalk) directory(ctx context.Context, dir *os.File, depth int) {
	for {
		names, err := dir.Readdirnames(diskBatch)
		for _, name := range names {
			if !w.next(ctx) {
				return
			}
			w.entry(ctx, dir, name, depth)
		}
		if err != nil {
			w.use.partial = w.use.partial || !errors.Is(err, io.EOF)
			return
		}
	}
}

// next reports whether one more entry may be visited, and pauses after each batch. If it returns false, w.use is
// partial.
func (w *diskWalk) next(ctx context.Context) bool {
	if w.left == 0 || ctx.Err() != nil {
		w.use.partial = true
		return false
	}
	w.left--
	if w.left%diskBatch == 0 {
		sleep(ctx, max(time.Since(w.batch), diskPause), nil)
		w.batch = time.Now()
	}
	return true
}

func (w *diskWalk) entry(ctx context.Context, dir *os.File, name string, depth int) {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT)
	if err != nil {
		w.use.partial = w.use.partial || !errors.Is(err, unix.ENOENT)
		return
	}
	if st.Dev != w.dev {
		return
	}
	w.count(&st)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return
	}
	if depth == diskDepth {
		w.use.partial = true
		return
	}
	fd, err := openDir(int(dir.Fd()), name)
	if err != nil { // ENOTDIR or ELOOP: something else has replaced the directory
		gone := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
		w.use.partial = w.use.partial || !gone
		return
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	w.directory(ctx, f, depth+1)
}

// count adds one file or directory to w.use. A file with several hard links is added once. After diskLinks such files,
// further ones are not added, and w.use is partial.
func (w *diskWalk) count(st *unix.Stat_t) {
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		switch {
		case w.seen[st.Ino]:
			return
		case len(w.seen) == diskLinks:
			w.use.partial = true
			return
		}
		w.seen[st.Ino] = true
	}
	w.use.bytes += st.Blocks * 512
}
