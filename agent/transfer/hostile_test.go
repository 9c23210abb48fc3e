package transfer

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// What a program puts in the place of a file that is read does not block the agent.
func TestOpenRegular(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, want := range map[string]bool{"file": true, "pipe": false, "link": true, ".": false} {
		done := make(chan error, 1)
		go func() {
			f, err := openRegular(root, name)
			if err == nil {
				err = f.Close()
			}
			done <- err
		}()
		select {
		case err := <-done:
			if (err == nil) != want {
				t.Errorf("%s: %v, want it opened: %v", name, err, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: opening it blocks", name)
		}
	}
}

// A node whose list of files has setuid and setgid bits plants no such files on another one.
func TestNoSetuidFilesArrive(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	special := uint32(fs.ModeSetuid | fs.ModeSetgid)
	entries := []entry{
		{Path: "data", Mode: uint32(fs.ModeDir) | special | 0o755, UID: os.Getuid(), GID: os.Getgid()},
		{Path: "data/sh", Mode: special | 0o755, UID: os.Getuid(), GID: os.Getgid()},
	}
	if err := layOut(root, entries); err != nil {
		t.Fatal(err)
	}
	if err := dress(root, entries); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := root.Lstat(e.Path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 || info.Mode().Perm() != 0o755 {
			t.Errorf("%s has mode %s", e.Path, info.Mode())
		}
	}
}

// What belonged to a user id that the source gave to the slot belongs to that of the target's afterwards; other owners stay. So it is after a restore elsewhere.
func TestCopiesGetTheUserOfTheSlot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to give files away")
	}
	const theirs, ours, account = 300_001, 500_002, 1234
	source, target, fetch := pair(t, 1<<20, nil)
	restart := func(n *node) {
		n.stop()
		n.gave, n.owner = func(uid int) bool { return uid == theirs }, ours
		n.start()
	}
	restart(source)
	restart(target)
	own := func(name string, uid int) {
		if err := os.Lchown(source.path(slotPath, name), uid, -1); err != nil {
			t.Fatal(err)
		}
	}
	check := func(n *node, tree ...string) {
		t.Helper()
		for name, want := range map[string]uint32{"data": ours, "data/base": account, "data/base/1/large": ours} {
			info, err := os.Lstat(filepath.Join(append([]string{n.path(tree...)}, name)...))
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Sys().(*syscall.Stat_t).Uid; got != want {
				t.Errorf("%s belongs to %d, want %d", name, got, want)
			}
		}
	}
	own("data", theirs)
	own("data/base", account)
	own("data/base/1/large", theirs)
	source.order(order(transport.TaskServe, "t1"))
	target.order(fetch)
	target.await("t1", fsm.SideVerified)
	check(target, stagingDir, "t1", "tree")

	source.order(order(transport.TaskBackup, "b1"))
	backup := source.await("b1", fsm.SideVerified)
	restore := order(transport.TaskRestore, "r1")
	restore.Backup, restore.Sum = "b1", backup.Sum
	target.stop()
	target.backups = source.backups
	target.start()
	target.order(restore)
	target.await("r1", fsm.SideVerified)
	check(target, stagingDir, "r1", "tree")
}

// A file that arrives with an id which this node gives to its instances gets that of its slot, also if the source no longer knows the id for one of a range.
func TestCopiesTakeNoIDOfAnotherInstance(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to give files away")
	}
	const another, ours = 300_001, 500_002
	source, target, fetch := pair(t, 1<<20, nil)
	target.stop()
	target.gave, target.owner = func(uid int) bool { return uid == another }, ours
	target.start()
	if err := os.Lchown(source.path(slotPath, "data/base/1/large"), another, -1); err != nil {
		t.Fatal(err)
	}
	source.order(order(transport.TaskServe, "t1"))
	target.order(fetch)
	target.await("t1", fsm.SideVerified)
	info, err := os.Lstat(filepath.Join(target.path(stagingDir, "t1", "tree"), "data", "base", "1", "large"))
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Sys().(*syscall.Stat_t).Uid; got != ours {
		t.Errorf("it belongs to %d, want %d", got, ours)
	}
}
