package transfer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// backedUp returns a node with a backup of its volumes, and another node that sees the same backup directory. It also
// returns a picture of the data, and the order that restores the backup.
func backedUp(t *testing.T, live bool) (n, other *node, want string, restore transport.TransferOrder) {
	t.Helper()
	n, other = newNode(t, nil), newNode(t, nil)
	other.stop()
	other.backups = n.backups
	other.start()
	if err := os.MkdirAll(n.path(slotPath), 0o700); err != nil {
		t.Fatal(err)
	}
	fill(t, n.path(slotPath), 20<<20)
	want = pictures(t, n.path(slotPath))
	o := order(transport.TaskBackup, "b1")
	o.Live = live
	n.order(o)
	done := n.await("b1", model.SideVerified)
	if len(done.Sum) != 64 || done.Total < 20<<20 {
		t.Errorf("report %+v", done)
	}
	restore = order(transport.TaskRestore, "r1")
	restore.Backup, restore.Sum = "b1", done.Sum
	return n, other, want, restore
}

// proves P20: a backup brings the data back on another node. The restored data is beside the data in use until it is
// attached.
func TestBackupAndRestore(t *testing.T) {
	n, other, want, restore := backedUp(t, false)
	archived := filepath.Join(n.backups, "b1")
	check := exec.Command("sha256sum", "--check", "--strict", archiveSum)
	check.Dir = archived
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
	if out, err := exec.Command("tar", "-tf", filepath.Join(archived, archiveData)).CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "data/base/1/large\n") {
		t.Errorf("tar: %v\n%s", err, out)
	}

	if err := os.MkdirAll(other.path(slotPath, "data", "begun"), 0o700); err != nil { // data in use on the other node
		t.Fatal(err)
	}
	setEpochs(t, other.path(slotPath), "1")
	other.order(restore)
	other.await("r1", model.SideVerified)
	if entries, _ := os.ReadDir(other.path(slotPath, "data")); len(entries) != 1 {
		t.Error("the restored data is in use before it was attached")
	}
	other.stop()
	other.start() // the restored copy survives a restart of the agent
	other.order(restore)
	other.await("r1", model.SideVerified)
	attach := order(transport.TaskAttach, "a1")
	attach.Staged = "r1"
	other.order(attach)
	other.await("a1", model.SideAttached)
	if got := pictures(t, other.path(slotPath)); got != want {
		t.Errorf("what was restored differs: %s", cmp.Diff(want, got))
	}
	if !exists(other.path(slotPath, "data@1", "begun")) {
		t.Error("what was there was not put aside")
	}
	other.order(order(transport.TaskDrop, "zz"))
	waitGone(t, other.path(stagingDir, "r1"))
}

// A live backup does not wait for the instance that uses the volumes.
func TestBackupLive(t *testing.T) {
	n := newNode(t, nil)
	if err := os.MkdirAll(n.path(slotPath), 0o700); err != nil {
		t.Fatal(err)
	}
	fill(t, n.path(slotPath), 1<<20)
	n.hold([]model.VolumeID{"db/main/0/data"}, "inst")
	o := order(transport.TaskBackup, "b1")
	o.Live = true
	n.order(o)
	n.await("b1", model.SideVerified)
}

// Directories and files are made and removed while a live backup reads the volume, as a database does with its
// segments. Each backup succeeds, and can be restored.
func TestBackupLiveWhileDirectoriesVanish(t *testing.T) {
	n := newNode(t, nil)
	fill(t, n.path(slotPath), 1<<20)
	n.hold([]model.VolumeID{"db/main/0/data"}, "inst")
	busy := n.path(slotPath, "data", "segments")
	done := make(chan struct{})
	var running sync.WaitGroup
	defer running.Wait()
	defer close(done)
	running.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			if err := errors.Join(
				os.MkdirAll(filepath.Join(busy, fmt.Sprint(i), "below"), 0o700),
				os.WriteFile(filepath.Join(busy, fmt.Sprint(i), "below", "rows"), []byte("rows"), 0o600),
				os.RemoveAll(filepath.Join(busy, fmt.Sprint(i-50))),
			); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 10 {
		o := order(transport.TaskBackup, model.TransferID(fmt.Sprintf("b%d", i)))
		o.Live = true
		n.order(o)
		done := n.await(o.ID, model.SideVerified)
		restore := order(transport.TaskRestore, model.TransferID(fmt.Sprintf("r%d", i)))
		restore.Backup, restore.Sum = model.BackupID(o.ID), done.Sum
		n.order(restore)
		n.await(restore.ID, model.SideVerified)
	}
}

// A damaged or missing archive is detected before any part of it is used, and the error says what is wrong with it.
func TestRestoreDamaged(t *testing.T) {
	damage := func(file string, at int64) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			f, err := os.OpenFile(filepath.Join(dir, file), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			b := make([]byte, 1)
			if _, err := f.ReadAt(b, at); err != nil {
				t.Fatal(err)
			}
			b[0] ^= 1
			if _, err := f.WriteAt(b, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		harm func(*testing.T, string)
		code model.Code
		want string
	}{
		"chunk": {damage(archiveData, 2*chunkBytes+9), model.CodeIntegrity,
			"chunk 2 of 6 of backup b1 is damaged (bytes 8388608 to 12582911 of data.tar)"},
		"manifest": {damage(archiveManifest, 20), model.CodeIntegrity,
			"the manifest of backup b1 is not the one that was written"},
		"cut": {func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, archiveData), 10<<20); err != nil {
				t.Fatal(err)
			}
		}, model.CodeIntegrity, "the data of backup b1 ends within chunk 2 of 6"},
		"gone": {func(t *testing.T, dir string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}, model.CodeNotFound, "there is no backup b1 in the backup directory of this node"},
	} {
		t.Run(name, func(t *testing.T) {
			n, other, _, restore := backedUp(t, false)
			tt.harm(t, filepath.Join(n.backups, "b1"))
			other.order(restore)
			if r := other.failure("r1"); r.Code != tt.code || !strings.Contains(r.Message, tt.want) {
				t.Errorf("%s: %s; want %s: %s", r.Code, r.Message, tt.code, tt.want)
			}
			if exists(other.path(stagingDir, "r1", "verified")) {
				t.Error("a damaged restore is marked as verified")
			}
		})
	}
}
