package transfer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// List returns the data of volumes with its epoch, both data in its place and data that was put aside. Empty
// directories and data without a known epoch are not listed.
func TestList(t *testing.T) {
	n, slot := filled(t)
	for _, dir := range []string{"data@7", "data@8", "data@6.1", "data@6.old", "data@unknown", "more"} {
		if err := os.Mkdir(filepath.Join(slot, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"data@7/rows", "data@6.1/rows", "data@6.old/rows", "data@unknown/rows", "more/rows"} {
		if err := os.WriteFile(filepath.Join(slot, file), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := List(n.dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[model.VolumeEpoch]bool{}
	for _, d := range list {
		if aside := d.Epoch >= 6; d.Aside != aside {
			t.Errorf("%+v: aside is %t", d, aside)
		}
		if d.Group != "db/main" || d.Slot != 0 || d.Written.IsZero() {
			t.Errorf("%+v", d)
		}
		got[model.VolumeEpoch{Name: d.Name, Epoch: d.Epoch}] = true
	}
	if want := [...]model.VolumeEpoch{{Name: "data", Epoch: 1}, {Name: "log", Epoch: 1},
		{Name: "data", Epoch: 7}, {Name: "data", Epoch: 6}}; len(got) != len(want) || len(list) != len(want) ||
		!got[want[0]] || !got[want[1]] || !got[want[2]] || !got[want[3]] {
		t.Errorf("listed are %v, want %v", got, want)
	}
	if list, err := List(filepath.Join(n.dir, "none")); err != nil || len(list) > 0 {
		t.Errorf("of a directory that is missing: %v, %v", list, err)
	}
}

// TaskFind checks that all data to attach is on the node, and fails if some is missing. TaskAttach then uses the data,
// whether the data is in its place or was put aside.
func TestAttachFound(t *testing.T) {
	for name, aside := range map[string]bool{"in its place": false, "put aside": true} {
		t.Run(name, func(t *testing.T) {
			n, slot := filled(t)
			want := pictures(t, slot)
			if aside {
				for _, name := range []string{"data", "log"} {
					if err := PutAside(filepath.Join(slot, name), "1"); err != nil {
						t.Fatal(err)
					}
				}
				setEpochs(t, slot, "5")
			}
			look := order(transport.TaskFind, "t1")
			look.Epochs = []uint64{1, 9}
			n.order(look)
			if r := n.failure("t1"); r.Code != model.CodeNotFound {
				t.Errorf("of data that is not there: %+v", r)
			}
			look.ID, look.Epochs = "t2", []uint64{1, 1}
			n.order(look)
			n.await("t2", model.SideVerified)
			put := order(transport.TaskAttach, "t2")
			put.Epoch, put.Epochs = 9, look.Epochs
			n.order(put)
			n.await("t2", model.SideAttached)
			if epoch, err := Epoch(n.path(slotPath, "data")); pictures(t, slot) != want || epoch != "9" || err != nil {
				t.Errorf("the data is not in use as it was, at epoch %q, %v", epoch, err)
			}
		})
	}
}

// Data that was put aside under a name with a number is found and attached. If the same epoch was put aside twice,
// nobody knows which one is meant, so the order is refused and both stay.
func TestAttachNumbered(t *testing.T) {
	n, slot := filled(t)
	want := pictures(t, slot)
	for _, name := range []string{"data", "log"} {
		older := filepath.Join(slot, name+"@1")
		if err := os.MkdirAll(filepath.Join(older, "old"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := PutAside(filepath.Join(slot, name), "1"); err != nil {
			t.Fatal(err)
		}
	}
	setEpochs(t, slot, "5")
	look := order(transport.TaskFind, "t1")
	n.order(look)
	if r := n.failure("t1"); r.Code != model.CodeConflict || !strings.Contains(r.Message, "data@1, and in ") ||
		!strings.Contains(r.Message, "data@1.1 too") {
		t.Errorf("of data that is there twice: %+v", r)
	}
	for _, name := range []string{"data@1", "log@1"} {
		if err := os.RemoveAll(filepath.Join(slot, name)); err != nil {
			t.Fatal(err)
		}
	}
	look.ID = "t2"
	n.order(look)
	n.await("t2", model.SideVerified)
	put := order(transport.TaskAttach, "t2")
	put.Epoch, put.Epochs = 9, look.Epochs
	n.order(put)
	n.await("t2", model.SideAttached)
	if pictures(t, slot) != want {
		t.Error("the data is not in use as it was")
	}
}
