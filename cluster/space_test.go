package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

const mib = 1 << 20

// fakeDisk simulates a disk that contains the ballast file and other files.
type fakeDisk struct {
	ballast string
	total   int64
	others  int64
}

func (d *fakeDisk) space(string) (free, total int64, err error) {
	free = d.total - d.others
	if st, err := os.Stat(d.ballast); err == nil {
		free -= st.Size()
	}
	return max(free, 0), d.total, nil
}

func TestSpaceStepsAsideBeforeTheDiskIsFull(t *testing.T) {
	dir := t.TempDir()
	disk := &fakeDisk{ballast: filepath.Join(dir, "ballast"), total: 1024 * mib}
	s := newSpaceWatch(dir, disk.ballast, 8*mib, disk.space, hclog.NewNullLogger())
	for _, step := range []struct {
		free    int64 // bytes that would be free without a ballast file
		want    Room
		ballast bool
	}{
		{1024 * mib, RoomEnough, true},
		{20 * mib, RoomEnough, true},
		{11 * mib, RoomLow, false}, // with the ballast only 3 MiB are free, less than half its size
		{15 * mib, RoomLow, false}, // less than the 16 MiB at which the ballast is written again
		{1 * mib, RoomLow, false},
		{mib / 2, RoomNone, false},
		{mib + mib/2, RoomNone, false},
		{3 * mib, RoomLow, false},
		{16 * mib, RoomEnough, true},
		{10, RoomNone, false}, // the disk fills between two looks
		{1024 * mib, RoomEnough, true},
	} {
		disk.others = disk.total - step.free
		s.look()
		_, err := os.Stat(disk.ballast)
		if s.room() != step.want || (err == nil) != step.ballast {
			t.Fatalf("with %d free: room %s, ballast %v; want %s, %v", step.free, s.room(), err == nil, step.want, step.ballast)
		}
		if err == nil {
			if blocks(t, disk.ballast) < 8*mib {
				t.Fatalf("the ballast takes %d bytes of disk; a sparse one gives nothing back", blocks(t, disk.ballast))
			}
		}
	}
}

func blocks(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

func TestSpaceOnASmallDisk(t *testing.T) {
	dir := t.TempDir()
	disk := &fakeDisk{ballast: filepath.Join(dir, "ballast"), total: 64 * mib}
	s := newSpaceWatch(dir, disk.ballast, 0, disk.space, hclog.NewNullLogger())
	if s.room() != RoomEnough || s.size != 8*mib {
		t.Errorf("64 MiB disk: room %s, ballast %d; want an eighth of the disk", s.room(), s.size)
	}
	// After a restart, the existing ballast file is used.
	s = newSpaceWatch(dir, disk.ballast, 0, disk.space, hclog.NewNullLogger())
	if !s.held || s.room() != RoomEnough {
		t.Errorf("after a restart: held %v, room %s", s.held, s.room())
	}
}

// A ballast file of another size, left by an earlier setting, is not kept while the disk fills.
func TestSpaceOfAnEarlierBallast(t *testing.T) {
	for _, tt := range []struct {
		earlier, size, free int64 // bytes; free is what is free beside the earlier ballast
		want                Room
		ballast             int64 // bytes afterwards
	}{
		{64 * mib, 8 * mib, mib / 2, RoomEnough, 8 * mib},
		{64 * mib, 8 * mib, 500 * mib, RoomEnough, 8 * mib},
		{8 * mib, 64 * mib, mib, RoomLow, 0},
		{8 * mib, 64 * mib, 500 * mib, RoomEnough, 64 * mib},
	} {
		dir := t.TempDir()
		disk := &fakeDisk{ballast: filepath.Join(dir, "ballast"), total: 1024 * mib}
		newSpaceWatch(dir, disk.ballast, tt.earlier, disk.space, hclog.NewNullLogger())
		disk.others = disk.total - tt.earlier - tt.free
		s := newSpaceWatch(dir, disk.ballast, tt.size, disk.space, hclog.NewNullLogger())
		ballast := int64(0)
		if st, err := os.Stat(disk.ballast); err == nil {
			ballast = st.Size()
		}
		if s.room() != tt.want || ballast != tt.ballast {
			t.Errorf("%+v: room %s, ballast %d", tt, s.room(), ballast)
		}
	}
}

func TestStatfsOfARealDirectory(t *testing.T) {
	free, total, err := Statfs(t.TempDir())
	if err != nil || free <= 0 || total < free {
		t.Errorf("free %d of %d, %v", free, total, err)
	}
	if _, _, err := Statfs("/does/not/exist"); err == nil {
		t.Error("no error for a missing directory")
	}
}
