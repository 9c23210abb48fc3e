package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

// SpaceFunc returns how many bytes an ordinary process can still write to the file system that holds dir, and the size
// of that file system.
type SpaceFunc func(dir string) (free, total int64, err error)

// Statfs is the SpaceFunc of the real disk.
func Statfs(dir string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(st.Bavail) * st.Bsize, int64(st.Blocks) * st.Bsize, nil
}

// Room is how much free space the disk has, in steps. A server reacts differently to each step.
type Room int32

// The steps of Room.
const (
	RoomEnough Room = iota // everything works
	RoomLow                // there is no ballast; no snapshots; a leader steps aside; see checkRoom for writes
	RoomNone               // nothing is appended, so that the log store never sees ENOSPC
)

// String returns the word that logs use.
func (r Room) String() string {
	switch r {
	case RoomEnough:
		return "enough"
	case RoomLow:
		return "low"
	case RoomNone:
		return "none"
	}
	return fmt.Sprintf("Room(%d)", int32(r))
}

// ballastBytes is the default size of the ballast file. The ballast takes at most an eighth of the file system.
const ballastBytes = 64 << 20

// spaceCheck is the time between looks at the free space. Each append causes a look too.
const spaceCheck = time.Second

// spaceWatch watches the free space and keeps a ballast file, so that it notices a full disk while there is still a
// file to delete. A write error would end the process, and write errors on two servers would stop a cluster of three.
type spaceWatch struct {
	dir    string
	path   string // the ballast file
	size   int64  // of the ballast
	space  SpaceFunc
	log    hclog.Logger
	state  atomic.Int32
	change atomic.Pointer[chan struct{}] // closed at the next change of the room
	free   atomic.Int64                  // bytes, as of the last look
	total  atomic.Int64                  // bytes; 0 means that no look has succeeded yet

	mu   sync.Mutex // one look at a time
	held bool       // whether the ballast file exists at its full size
}

// newSpaceWatch returns a watch for dir after a first look, which may write or delete the ballast file at path. size is
// the size of the ballast in bytes; 0 means the default. While the free space can't be read, the room does not change,
// and at the start it is RoomEnough. In that case, only errors of the log store show that the disk is full.
func newSpaceWatch(dir, path string, size int64, space SpaceFunc, log hclog.Logger) *spaceWatch {
	if space == nil {
		space = Statfs
	}
	if size <= 0 {
		size = ballastBytes
	}
	if _, total, err := space(dir); err == nil && total > 0 {
		size = min(size, total/8)
	}
	s := &spaceWatch{dir: dir, path: path, size: size, space: space, log: log}
	change := make(chan struct{})
	s.change.Store(&change)
	if st, err := os.Stat(path); err == nil {
		s.held = st.Size() == size
		if !s.held { // of an earlier setting, or cut off by a crash
			log.Info("removing a ballast file of another size", "path", path, "bytes", st.Size(), "want_bytes", size)
			if err := os.Remove(path); err != nil {
				log.Error("can't remove the ballast file", "path", path, "error", err)
			}
		}
	}
	s.look()
	return s
}

func (s *spaceWatch) run(ctx context.Context) {
	tick := time.NewTicker(spaceCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.look()
		}
	}
}

// room returns the room at the last look. It never blocks.
func (s *spaceWatch) room() Room { return Room(s.state.Load()) }

// check returns an error while this server, which leads, can't append. leader is this server's name, for the message.
// check never blocks. Code: disk_full.
func (s *spaceWatch) check(leader string) error {
	if s.room() != RoomNone {
		return nil
	}
	return model.Refuse(model.CodeDiskFull, "the disk of the leading server %s is full", leader).
		WithHint("free space under its data_dir; it goes on by itself")
}

// seen returns the free and the total bytes at the last look. It never blocks.
func (s *spaceWatch) seen() (free, total int64) { return s.free.Load(), s.total.Load() }

// changed returns a channel that is closed when the room changes. Callers take the channel before they call room, so
// that they miss no change.
func (s *spaceWatch) changed() <-chan struct{} { return *s.change.Load() }

// look reads the free space, and writes or deletes the ballast. It is also called before each append, because a log
// that is written at full speed can use up the margin between two ticks. A look takes little time compared with the
// append's fsync.
func (s *spaceWatch) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	free, total, err := s.space(s.dir)
	if err != nil {
		s.log.Warn("can't read the free space", "dir", s.dir, "error", err)
		return
	}
	s.free.Store(free)
	s.total.Store(total)
	was := s.room()
	now := s.next(was, free)
	if now == was {
		return
	}
	s.state.Store(int32(now))
	s.log.Warn("free space changed", "dir", s.dir, "room", now, "was", was, "free_bytes", free)
	next := make(chan struct{})
	close(*s.change.Swap(&next))
}

// next returns the new room, and writes or deletes the ballast. If less than half the ballast's size is free, next
// deletes the ballast, and the room is RoomLow. If less than an eighth is free even then, the room is RoomNone until a
// quarter is free. When twice the ballast's size is free, next writes the ballast again, and the room is RoomEnough.
// The distance between these limits keeps the room from flapping.
func (s *spaceWatch) next(was Room, free int64) Room {
	margin := s.size / 2
	if s.held && free < margin && s.release() {
		if again, _, err := s.space(s.dir); err == nil {
			free = again
		}
	}
	none := s.size / 8
	if was == RoomNone {
		none = s.size / 4
	}
	switch {
	case !s.held && free < none:
		return RoomNone
	case s.held && free >= margin:
		return RoomEnough
	case free < s.size+2*margin:
		return RoomLow
	case s.refill():
		return RoomEnough
	}
	return RoomLow
}

// release deletes the ballast. It returns false if the ballast still exists.
func (s *spaceWatch) release() bool {
	if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.log.Error("can't release the ballast file", "path", s.path, "error", err)
		return false
	}
	s.held = false
	s.log.Warn("released the ballast file", "path", s.path, "bytes", s.size)
	return true
}

// refill writes the ballast again, and reports whether that succeeded.
func (s *spaceWatch) refill() bool {
	if err := allocate(s.path, s.size); err != nil {
		s.log.Warn("can't make the ballast file", "path", s.path, "bytes", s.size, "error", err)
		_ = os.Remove(s.path)
		return false
	}
	s.held = true
	return true
}

// allocate creates a file whose blocks are really allocated, because deleting a sparse file would free nothing.
func allocate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		_, err = io.CopyN(f, zeros{}, size)
	}
	return errors.Join(err, f.Close())
}

type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
