package transfer

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A list whose file can't get rid of its name is not used, and its file does not stay open.
func TestListThatKeepsItsName(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to forbid the removal of files")
	}
	dir := filepath.Join(t.TempDir(), stagingDir)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const appendOnly = 0x20 // FS_APPEND_FL: new names are allowed, the removal of names is not
	if err := unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, appendOnly); err != nil {
		t.Skipf("skipped: the file system can't forbid the removal of files: %v", err)
	}
	defer func() {
		if err := unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, 0); err != nil {
			t.Error(err)
		}
	}()
	k := &task{m: &Mover{cfg: Config{Volumes: filepath.Dir(dir)}}}
	if _, err := k.bringList(context.Background()); err == nil {
		t.Fatal("a file that can't be removed is used")
	}
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if to, _ := os.Readlink(fd); strings.HasPrefix(to, filepath.Join(dir, "list-")) {
			t.Errorf("%s stays open", to)
		}
	}
}
