package erase_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/internal/erase"
)

// TestMain makes the test binary usable as a program: `erase DIR` removes DIR with at most 64 open files.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "erase" {
		few := unix.Rlimit{Cur: 64, Max: 64}
		err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few)
		if err == nil {
			err = erase.Tree(os.Args[2])
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// nest makes nested directories below dir, with a file in each, and opens the innermost one. The caller must close it.
func nest(t *testing.T, dir string, levels int) *os.File {
	t.Helper()
	at, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range levels {
		name := strings.Repeat("d", 200)
		if err := unix.Mkdirat(int(at.Fd()), name, 0o700); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Openat(int(at.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		at.Close()
		at = os.NewFile(uintptr(fd), name)
		file, err := unix.Openat(fd, "f", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(file)
	}
	return at
}

func gone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is there: %v", filepath.Base(path), err)
	}
}

// A tree is removed even if it has more levels than the process may have open files, and paths that are longer than a
// system call accepts.
func TestDeepTree(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = erase.Tree(dir) }() // the cleanup of package testing can't remove such a tree
	for range 3 {
		nest(t, dir, 500).Close()
		out, err := exec.Command(os.Args[0], "erase", dir).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %.500s", err, out)
		}
		gone(t, dir)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// A tree is removed even if directories in it have no permissions, many entries, or a name that Tree uses itself. The
// targets of symbolic links stay.
func TestOddTree(t *testing.T) {
	base := t.TempDir()
	kept := filepath.Join(base, "kept")
	dir := filepath.Join(base, "tree")
	for _, d := range []string{kept, dir, dir + "/a", dir + "/a/b", dir + "/.erase-" + fmt.Sprint(os.Getpid()) + "-0"} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1000 {
		if err := os.WriteFile(fmt.Sprintf("%s/a/b/%d", dir, i), nil, 0o400); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(kept+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink(kept, dir+"/link"), os.Chmod(dir+"/a/b", 0), os.Chmod(dir+"/a", 0o400)); err != nil {
		t.Fatal(err)
	}
	nest(t, dir, 100).Close()
	if err := erase.Tree(dir); err != nil {
		t.Fatal(err)
	}
	gone(t, dir)
	if _, err := os.Stat(kept + "/file"); err != nil {
		t.Error("what a link leads to was removed")
	}
	if err := errors.Join(os.Symlink(kept, dir), erase.Tree(dir), erase.Tree(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(kept + "/file"); err != nil {
		t.Error("what a link leads to was removed")
	}
}

// The error about a file that can't be removed is short, however deep the file is.
func TestErrorIsShort(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a file that can't be removed")
	}
	dir := filepath.Join(t.TempDir(), "deep")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	inner := nest(t, dir, 200)
	mounted := "/proc/self/fd/" + fmt.Sprint(inner.Fd())
	if err := unix.Mount("none", mounted, "tmpfs", 0, "size=64k"); err != nil {
		inner.Close()
		t.Skip("no mount can be made here: ", err)
	}
	err := erase.Tree(dir)
	if err == nil || len(err.Error()) > 600 {
		t.Errorf("error %.700v", err)
	}
	if e := unix.Unmount(mounted, unix.MNT_DETACH); e != nil {
		t.Log(e)
	}
	inner.Close()
	if err := erase.Tree(dir); err != nil {
		t.Errorf("without the mount: %v", err)
	}
}
