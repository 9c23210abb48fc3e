package transfer

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// openRegular opens only regular files, and never blocks. This matters because a program may replace a file that the
// agent is about to read, for example by a named pipe.
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

// Setuid and setgid bits in another node's list of files are ignored. Only the owner of a volume may enter the volume's
// directory, whatever mode the list has for it.
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
	modes := map[string]fs.FileMode{"data": 0o700, "data/sh": 0o755}
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
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 || info.Mode().Perm() != modes[e.Path] {
			t.Errorf("%s has mode %s", e.Path, info.Mode())
		}
	}
}

type owner struct{ uid, gid int }

// ownersBelow returns the actual owner of each file below tree whose name is a key of files.
func ownersBelow(t *testing.T, tree string, files map[string]owner) map[string]owner {
	t.Helper()
	got := map[string]owner{}
	for name := range files {
		info, err := os.Lstat(filepath.Join(tree, name))
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*syscall.Stat_t)
		got[name] = owner{int(st.Uid), int(st.Gid)}
	}
	return got
}

// In a copy, the slot's user on the target owns all files that belonged to root, to the slot's user at the source, or
// to an account that no job may run as on the target. Other files keep their owner, and keep their group if the owner
// is a member of it. The same holds for a restore.
func TestOwnersOfCopies(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to give files away")
	}
	const theirs, another, ours, database, certificates, kmem = 300_001, 300_002, 500_002, 1234, 1300, 15
	source, target, fetch := pair(t, 1<<20, nil)
	target.stop()
	target.backups = source.backups
	target.owner = Account{UID: ours, Groups: []int{65534}}
	target.mayRunAs = map[int]Account{database: {UID: database, Groups: []int{database, certificates}}}
	target.start()
	before := map[string]owner{
		"data": {theirs, 65534}, "data/base/1/large": {theirs, theirs}, "data/away": {0, 0}, "data/empty": {0, kmem},
		"data/base": {database, database}, "data/base/1": {database, certificates}, "data/link": {database, kmem},
		"log": {0, 0}, "log/001": {another, 65534}, "log/002": {2000, database}, "log/003": {another, kmem},
	}
	after := map[string]owner{
		"data": {ours, 65534}, "data/base/1/large": {ours, 65534}, "data/away": {ours, 65534}, "data/empty": {ours, 65534},
		"data/base": {database, database}, "data/base/1": {database, certificates}, "data/link": {database, database},
		"log": {ours, 65534}, "log/001": {ours, 65534}, "log/002": {ours, 65534}, "log/003": {ours, 65534},
	}
	for name, to := range before {
		if err := os.Lchown(source.path(slotPath, name), to.uid, to.gid); err != nil {
			t.Fatal(err)
		}
	}
	source.order(order(transport.TaskServe, "t1"))
	target.order(fetch)
	target.await("t1", model.SideVerified)
	if d := cmp.Diff(after, ownersBelow(t, target.path(stagingDir, "t1", "tree"), after),
		cmp.AllowUnexported(owner{})); d != "" {
		t.Errorf("after a move: %s", d)
	}

	source.order(order(transport.TaskBackup, "b1"))
	backup := source.await("b1", model.SideVerified)
	restore := order(transport.TaskRestore, "r1")
	restore.Backup, restore.Sum = "b1", backup.Sum
	target.order(restore)
	target.await("r1", model.SideVerified)
	if d := cmp.Diff(after, ownersBelow(t, target.path(stagingDir, "r1", "tree"), after),
		cmp.AllowUnexported(owner{})); d != "" {
		t.Errorf("after a restore: %s", d)
	}
}

// A container's volume belongs to a user of its image, whose id is the same on every node. So a move and a restore keep
// that owner, if jobs may run as this id on the target.
func TestOwnersOfCopiesOfContainers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to give files away")
	}
	const web, forbidden, ours = 1000, 1001, 500_002
	source, target, fetch := pair(t, 1<<20, nil)
	target.stop()
	target.backups = source.backups
	target.owner = Account{UID: ours, Groups: []int{65534}}
	target.mayRunAs = map[int]Account{web: {UID: web, Groups: []int{web}}}
	target.start()
	before := map[string]owner{"data": {web, web}, "data/empty": {web, web}, "log": {web, web},
		"log/001": {forbidden, web}}
	after := map[string]owner{"data": {web, web}, "data/empty": {web, web}, "log": {web, web}, "log/001": {ours, 65534}}
	for name, to := range before {
		if err := os.Lchown(source.path(slotPath, name), to.uid, to.gid); err != nil {
			t.Fatal(err)
		}
	}
	verified := func(id model.TransferID) {
		t.Helper()
		target.await(id, model.SideVerified)
		if d := cmp.Diff(after, ownersBelow(t, target.path(stagingDir, string(id), "tree"), after),
			cmp.AllowUnexported(owner{})); d != "" {
			t.Errorf("%s: %s", id, d)
		}
	}
	source.order(order(transport.TaskServe, "t1"))
	fetch.Container = true
	target.order(fetch)
	verified("t1")
	source.order(order(transport.TaskBackup, "b1"))
	restore := order(transport.TaskRestore, "r1")
	restore.Backup, restore.Sum, restore.Container = "b1", source.await("b1", model.SideVerified).Sum, true
	target.order(restore)
	verified("r1")
}

// Data that was put aside and is attached again never left the node. So its files keep their owners.
func TestOwnersOfFoundDataStay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to give files away")
	}
	n := newNode(t, nil)
	fill(t, n.path(slotPath), 1<<20)
	want := map[string]owner{"data": {1234, 1234}, "data/empty": {0, 0}, "log/001": {2000, 15}}
	for name, to := range want {
		if err := os.Lchown(n.path(slotPath, name), to.uid, to.gid); err != nil {
			t.Fatal(err)
		}
	}
	n.order(order(transport.TaskRetire, "t1"))
	n.await("t1", model.SideRetired)
	attach := order(transport.TaskAttach, "a1")
	attach.Epochs = []uint64{1, 1}
	n.order(attach)
	n.await("a1", model.SideAttached)
	if d := cmp.Diff(want, ownersBelow(t, n.path(slotPath), want), cmp.AllowUnexported(owner{})); d != "" {
		t.Error(d)
	}
}

// If the target lacks a job's user, the fetch fails before it copies anything, because the job's instance could not
// start on the target.
func TestNoCopyForAUserThatIsNotThere(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: an agent that is not root changes no owners")
	}
	source, target, fetch := pair(t, 1<<20, nil)
	target.stop()
	target.refused = model.Refuse("user_unknown", "user %q does not exist on this node", "postgres")
	target.start()
	fetch.User = "postgres"
	source.order(order(transport.TaskServe, "t1"))
	target.order(fetch)
	if r := target.failure("t1"); r.Code != "user_unknown" {
		t.Errorf("%s: %s", r.Code, r.Message)
	}
	if exists(target.path(stagingDir, "t1")) {
		t.Error("a copy was begun")
	}
}

// At most maxOwners accounts are looked up, however many owners a hostile source's list names.
func TestOwnersThatAreLookedUpAreBounded(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: an agent that is not root changes no owners")
	}
	asked := 0
	m := New(Config{
		Owner:    func(model.GroupID, int, string) (Account, error) { return Account{UID: 7, Groups: []int{7}}, nil },
		MayRunAs: func(uid int) (Account, bool) { asked++; return Account{UID: uid, Groups: []int{uid}}, true },
	})
	list := manifest{Entries: make([]entry, 10*maxOwners)}
	for i := range list.Entries {
		list.Entries[i].UID, list.Entries[i].GID = i, -1
	}
	if err := (&task{m: m}).readdress(&list); err != nil {
		t.Fatal(err)
	}
	first, last := list.Entries[1], list.Entries[len(list.Entries)-1]
	if asked > maxOwners || first.UID != 1 || first.GID != 1 || last.UID != 7 || last.GID != 7 {
		t.Errorf("%d accounts were looked up; the first file belongs to %d:%d, the last to %d:%d", asked, first.UID,
			first.GID, last.UID, last.GID)
	}
}
