package transfer

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A program repeatedly swaps a directory for a named pipe while a live backup lists the volume. The listing never
// blocks.
func TestScanOfAPipeInPlaceOfADirectory(t *testing.T) {
	volume := filepath.Join(t.TempDir(), "data")
	dir, pipe := filepath.Join(volume, "d"), filepath.Join(volume, "p")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(filepath.Dir(volume))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var swapping sync.WaitGroup
	var stop atomic.Bool
	swapping.Go(func() {
		runtime.LockOSThread()
		for !stop.Load() {
			_ = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, pipe, unix.RENAME_EXCHANGE)
		}
	})
	defer swapping.Wait()
	defer stop.Store(true)
	scanned := make(chan error, 1)
	go func() {
		for range 3000 {
			if _, err := scan(root, []string{"data"}, true); err != nil {
				scanned <- err
				return
			}
		}
		scanned <- nil
	}()
	select {
	case err := <-scanned:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(60 * time.Second):
		t.Error("the list of a volume waits for somebody to write into a pipe")
		for _, path := range []string{dir, pipe} { // unblock a scan that opened a pipe
			if fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
				_ = unix.Close(fd)
			}
		}
	}
}
