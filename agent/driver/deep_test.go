package driver_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/internal/erase"
)

// sweepWithFew opens the driver of dir in a process that may have at most 80 files open. The driver then removes the
// working directories of unknown instances. The result is the exit code of the process.
func sweepWithFew(dir string) int {
	few := unix.Rlimit{Cur: 80, Max: 80}
	err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few)
	if err == nil {
		var d *driver.Driver
		if d, err = driver.New(driver.Config{Dir: dir}); err == nil {
			_, _, err = d.Adopt(context.Background())
			err = errors.Join(err, d.Close())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A working directory is removed even if it is nested more deeply than the agent may have files open.
func TestDeepWorkDirectoryIsRemoved(t *testing.T) {
	dir := t.TempDir()
	top := filepath.Join(dir, "work", "i1")
	must(t, os.MkdirAll(top, 0o700))
	defer func() { _ = erase.Tree(top) }() // the cleanup of t.TempDir can't remove a tree of this depth
	at, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range 300 {
		must(t, unix.Mkdirat(at, "deeper", 0o700))
		next, err := unix.Openat(at, "deeper", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		must(t, unix.Close(at))
		at = next
	}
	must(t, unix.Close(at))
	out, err := exec.Command(os.Args[0], "helper", "sweep-with-few", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %.500s", err, out)
	}
	if _, err := os.Lstat(top); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the working directory is there: %v", err)
	}
}
