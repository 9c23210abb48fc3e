package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// localAssignment returns the assignment of an instance whose local volume has data of the given epoch. If held is
// true, the servers know that a program has used the data.
func localAssignment(epoch uint64, held bool) transport.Assignment {
	a := copyAssignment(epoch)
	a.Spec.Volumes[0].Kind = model.VolumeLocal
	if held {
		a.Held = []string{"data"}
	}
	return a
}

// The agent makes a local volume only once. Later instances start only if the newest data of the volume is on the disk.
func TestLocalVolumeIsNeverMadeAgain(t *testing.T) {
	v := newVolumes(t.TempDir())
	dir := v.dir(localAssignment(7, false), "data")
	start := func(epoch uint64, held bool) error { return v.prepare(localAssignment(epoch, held), account{}) }
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, &model.Error{Code: model.CodeIntegrity}) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := start(7, false); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "rows"), "first")
	if err := start(7, true); err != nil || !slices.Equal(listed(t, dir), []string{"rows"}) {
		t.Fatalf("the next instance: %v, finds %v", err, listed(t, dir))
	}

	if err := os.Rename(dir, dir+".moved"); err != nil {
		t.Fatal(err)
	}
	refused("its directory is missing", start(7, true))
	refused("its directory is missing, and the servers have not heard yet that it was used", start(7, false))
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("the directory was made again")
	}
	if err := os.Rename(dir+".moved", dir); err != nil {
		t.Fatal(err)
	}
	refused("the servers mean newer data", start(9, true))
	if got := listed(t, dir); !slices.Equal(got, []string{"rows"}) {
		t.Errorf("a refusal changed what is there: %v", got)
	}

	other := newVolumes(t.TempDir()) // an empty directory, as if the disk were not mounted
	refused("the disk is another one", other.prepare(localAssignment(7, true), account{}))
}

// If a volume starts empty again, as after a purge, its older data is put aside.
func TestLocalVolumeBeginsAnew(t *testing.T) {
	v := newVolumes(t.TempDir())
	for epoch := uint64(7); epoch < 9; epoch++ {
		a := localAssignment(epoch, false)
		if err := v.prepare(a, account{}); err != nil {
			t.Fatal(err)
		}
		dir := v.dir(a, "data")
		if got := listed(t, dir); len(got) != 0 {
			t.Fatalf("epoch %d begins with %v", epoch, got)
		}
		put(t, filepath.Join(dir, "rows"), "old")
	}
	dir := v.dir(localAssignment(7, false), "data")
	if text, err := os.ReadFile(dir + "@7/rows"); err != nil || string(text) != "old" {
		t.Errorf("the older data was not kept: %q, %v", text, err)
	}
}

// Volumes of an older release have an epoch neither in their row nor beside their directory. If only the row has an
// epoch, the volume starts empty. If both have none, the first instance uses the directory, and later instances don't
// start without it.
func TestLocalVolumeWithoutEpoch(t *testing.T) {
	v := newVolumes(t.TempDir())
	dir := v.dir(localAssignment(0, true), "data")
	unmarked := func() {
		t.Helper()
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, "rows"), "old")
	}
	unmarked()
	if err := v.prepare(localAssignment(0, false), account{}); err != nil ||
		!slices.Equal(listed(t, dir), []string{"rows"}) {
		t.Fatalf("%v, finds %v", err, listed(t, dir))
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := v.prepare(localAssignment(0, false), account{}); !errors.Is(err, &model.Error{Code: model.CodeIntegrity}) {
		t.Errorf("the directory that was taken is missing: %v", err)
	}

	if err := os.Remove(dir + "@copy"); err != nil {
		t.Fatal(err)
	}
	unmarked()
	if err := v.prepare(localAssignment(7, false), account{}); err != nil || len(listed(t, dir)) != 0 {
		t.Errorf("a new volume: %v, begins with %v", err, listed(t, dir))
	}
}

// The agent itself remembers that a volume was used. If the volume's data is missing when the program exits, the agent
// does not restart the program on an empty volume.
func TestProgramDoesNotRestartWithoutItsData(t *testing.T) {
	b := newBench(t, allowRoot)
	pidFile := filepath.Join(b.dir, "pid")
	g := sh("echo $$ > " + pidFile + "; exec sleep 1000")
	g.Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: filepath.Join(b.dir, "place")}}
	id := b.run("web", g, nil)
	b.await(id, model.ObservedReady)
	slot := filepath.Join(b.cfg.DataDir, "volumes", "web", "g", "0")
	must(t, os.Rename(slot, slot+".away"))
	must(t, syscall.Kill(pidOf(t, pidFile), syscall.SIGKILL))
	if i := b.await(id, model.ObservedFailed); !strings.Contains(i.Status.Reason,
		"the data of volume data is not on this disk") {
		t.Errorf("reason %q", i.Status.Reason)
	}
	if _, err := os.Lstat(filepath.Join(slot, "data")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the volume was made again: %v", err)
	}
}
