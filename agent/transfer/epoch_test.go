package transfer

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// filled returns a node whose slot has data of epoch 1.
func filled(t *testing.T) (n *node, slot string) {
	t.Helper()
	n = newNode(t, nil)
	slot = n.path(slotPath)
	if err := os.MkdirAll(slot, 0o700); err != nil {
		t.Fatal(err)
	}
	fill(t, slot, 1<<20)
	return n, slot
}

// If the source of a transfer was unreachable for the whole cooling time, it gets the order to drop without an order to
// retire. The source then removes the old data from the place where instances would find it.
func TestDropWithoutRetire(t *testing.T) {
	n, slot := filled(t)
	n.order(order(transport.TaskDrop, "t1"))
	n.await("t1", model.SideDropped)
	for _, name := range []string{"data", "data@1", "log", "log@1"} {
		if exists(n.path(slotPath, name)) {
			t.Errorf("%s of %s is still there", name, slot)
		}
	}
}

// Retire and drop name the epoch of the old copy, and do not touch data of another epoch.
func TestRetireAndDropTouchNoOtherEpoch(t *testing.T) {
	n, slot := filled(t)
	setEpochs(t, slot, "5")
	want := pictures(t, slot)
	for _, o := range []struct {
		task transport.TransferTask
		says model.TransferState
	}{{transport.TaskRetire, model.SideRetired}, {transport.TaskDrop, model.SideDropped}} {
		n.order(order(o.task, "t1"))
		n.await("t1", o.says)
		if got := pictures(t, slot); got != want {
			t.Fatalf("%s changed data of another epoch", o.task)
		}
	}
}

// A drop does not remove data that a running instance uses. A drop of data that was put aside earlier does not wait for
// the instance that runs now.
func TestDropWaitsForTheInstance(t *testing.T) {
	n, slot := filled(t)
	if user := n.hold([]model.VolumeID{"db/main/0/data"}, "inst"); user != "" {
		t.Fatal(user)
	}
	drop := &task{TransferOrder: order(transport.TaskDrop, "t1"), m: n.current()}
	if err := drop.hold(); err == nil {
		t.Error("the data of a running instance would be removed")
	}
	setEpochs(t, slot, "5")
	n.order(order(transport.TaskDrop, "t2"))
	n.await("t2", model.SideDropped)
}

// If a verified copy is lost, its attachment fails, and does not mistake older data in the slot for the copy.
func TestAttachTakesOnlyTheCopy(t *testing.T) {
	n, slot := filled(t)
	want := pictures(t, slot)
	n.order(order(transport.TaskAttach, "t2"))
	if r := n.failure("t2"); r.Code != model.CodeIntegrity || !strings.Contains(r.Message, "no verified copy of data") {
		t.Errorf("%s: %s", r.Code, r.Message)
	}
	if got := pictures(t, slot); got != want {
		t.Error("the attachment that failed changed what was there")
	}
}

// An old copy can be attached again, whether it was put aside or is still in its place. The attached copy gets the new
// epoch.
func TestAttachOldCopy(t *testing.T) {
	for _, retired := range []bool{true, false} {
		n, slot := filled(t)
		want := pictures(t, slot)
		if retired {
			n.order(order(transport.TaskRetire, "t1"))
			n.await("t1", model.SideRetired)
		}
		again := order(transport.TaskAttach, "t2")
		again.Staged, again.Epoch, again.Epochs = "t1", 9, []uint64{1, 1}
		n.order(again)
		n.await("t2", model.SideAttached)
		if epoch, err := Epoch(n.path(slotPath, "data")); pictures(t, slot) != want || epoch != "9" || err != nil {
			t.Errorf("retired %t: the old copy is not in use as it was, at epoch %q, %v", retired, epoch, err)
		}
		n.order()
		n.order(again)
		n.await("t2", model.SideAttached)
		if exists(n.path(slotPath, "data@1")) || pictures(t, slot) != want {
			t.Errorf("retired %t: attaching again changed it", retired)
		}
	}
}

// The empty directory of a volume that was never written does not block the attachment of a copy.
func TestAttachOverEmptyDirectory(t *testing.T) {
	source, target, fetch := pair(t, 1<<20, nil)
	want := pictures(t, source.path(slotPath))
	for _, name := range []string{"data", "log"} {
		if err := os.MkdirAll(target.path(slotPath, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	setEpochs(t, target.path(slotPath), "1")
	source.order(order(transport.TaskServe, "t1"))
	target.order(fetch)
	target.await("t1", model.SideVerified)
	target.order(order(transport.TaskAttach, "t1"))
	target.await("t1", model.SideAttached)
	if got := pictures(t, target.path(slotPath)); got != want {
		t.Error("the copy is not in its place")
	}
}

// The new epoch is never noted beside an empty directory. Otherwise, if the agent died then, an instance would start
// without its data. Here the directory can't be removed, because a file system is mounted on it.
func TestNoEpochForAnEmptyDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to mount a file system")
	}
	source, target, fetch := pair(t, 1<<20, nil)
	dir := target.path(slotPath, "data")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	setEpochs(t, target.path(slotPath), "1")
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	source.order(order(transport.TaskServe, "t1"))
	target.order(fetch)
	target.await("t1", model.SideVerified)
	target.order(order(transport.TaskAttach, "t1"))
	target.failure("t1")
	if epoch, err := Epoch(dir); epoch != "1" || err != nil {
		t.Errorf("the empty directory has epoch %q, %v", epoch, err)
	}
}

// If the agent dies after it has recorded the epoch and before it has moved the copy into its place, the next try
// completes the attachment.
func TestAttachInterrupted(t *testing.T) {
	source, target, fetch := pair(t, 1<<20, nil)
	want := pictures(t, source.path(slotPath))
	source.order(order(transport.TaskServe, "t1"))
	target.order(fetch)
	target.await("t1", model.SideVerified)
	if err := os.MkdirAll(target.path(slotPath), 0o711); err != nil {
		t.Fatal(err)
	}
	setEpochs(t, target.path(slotPath), "2")
	target.order(order(transport.TaskAttach, "t1"))
	target.await("t1", model.SideAttached)
	if got := pictures(t, target.path(slotPath)); got != want {
		t.Error("the copy is not in its place")
	}
}

// A node serves and backs up only data of the epoch that the order names.
func TestServeOnlyTheNewest(t *testing.T) {
	n, slot := filled(t)
	setEpochs(t, slot, "7")
	for _, task := range []transport.TransferTask{transport.TaskServe, transport.TaskBackup} {
		id := model.TransferID("t-" + task)
		n.order(order(task, id))
		if r := n.failure(id); r.Code != model.CodeIntegrity || !strings.Contains(r.Message, "not the newest") {
			t.Errorf("%s: %s: %s", task, r.Code, r.Message)
		}
	}
}
