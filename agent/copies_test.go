package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// copyAssignment returns an assignment with a replicated volume. The parameter made is the epoch of its copy.
func copyAssignment(made uint64) transport.Assignment {
	return transport.Assignment{
		ID: "i1", Group: "db/main", Job: "db", Slot: 2, Copies: map[string]uint64{"data": made},
		Spec: &model.GroupSpec{Name: "main",
			Volumes: []model.VolumeSpec{{Name: "data", Kind: model.VolumeReplicated, Path: "/data"}}},
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func listed(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestReplicatedCopy: a new member starts with an empty volume, and a member that returns finds its copy. When a new
// copy replaces an older one, the older data is put aside and never deleted.
func TestReplicatedCopy(t *testing.T) {
	v := newVolumes(t.TempDir())
	prepare := func(made uint64) string {
		t.Helper()
		a := copyAssignment(made)
		if err := v.prepare(a, account{}); err != nil {
			t.Fatal(err)
		}
		return v.dir(a, "data")
	}
	dir := prepare(7)
	if got := listed(t, dir); len(got) != 0 {
		t.Fatalf("a new copy begins with %v", got)
	}
	put(t, filepath.Join(dir, "rows"), "first")

	if got := listed(t, prepare(7)); !slices.Equal(got, []string{"rows"}) {
		t.Fatalf("the member came back to %v, want its rows", got)
	}

	if got := listed(t, prepare(30)); len(got) != 0 {
		t.Fatalf("a new copy begins with %v of the older one", got)
	}
	put(t, filepath.Join(dir, "rows"), "second")
	if text, err := os.ReadFile(dir + "@7/rows"); err != nil || string(text) != "first" {
		t.Fatalf("the older copy was not kept: %q, %v", text, err)
	}

	prepare(7) // after a restore, an epoch may be used again, for a new copy
	prepare(30)
	put(t, filepath.Join(dir, "rows"), "third")
	prepare(31)
	if got, want := listed(t, filepath.Dir(dir)), []string{"data", "data@30", "data@30.1", "data@7",
		"data@copy"}; !slices.Equal(got, want) {
		t.Fatalf("beside the volume: %v, want %v", got, want)
	}
}

// TestReplicatedCopyInterrupted: if an agent dies while it puts an older copy aside, the next agent does the remaining
// steps.
func TestReplicatedCopyInterrupted(t *testing.T) {
	v := newVolumes(t.TempDir())
	a := copyAssignment(7)
	dir := v.dir(a, "data")
	if err := v.prepare(a, account{}); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "rows"), "first")
	if err := os.Rename(dir, dir+"@7"); err != nil { // the agent died after this step
		t.Fatal(err)
	}
	if err := v.prepare(copyAssignment(30), account{}); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, dir); len(got) != 0 {
		t.Fatalf("the new copy begins with %v", got)
	}
	if note, err := os.ReadFile(dir + "@copy"); err != nil || string(note) != "30\n" {
		t.Fatalf("the note says %q, %v", note, err)
	}
}

// TestReplicatedCopyFromBefore: data without a recorded epoch is put aside, and the new copy starts empty.
func TestReplicatedCopyFromBefore(t *testing.T) {
	v := newVolumes(t.TempDir())
	a := copyAssignment(7)
	dir := v.dir(a, "data")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "rows"), "of a local volume")
	if err := v.prepare(a, account{}); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, dir); len(got) != 0 {
		t.Fatalf("the new copy begins with %v", got)
	}
	if got := listed(t, dir+"@unknown"); !slices.Equal(got, []string{"rows"}) {
		t.Fatalf("what was there became %v", got)
	}
}

// TestUnmarkedLocalVolume: a local volume without a recorded epoch is accepted if its row in the state has no epoch
// either. The agent then records epoch 0. An empty or missing directory is refused.
func TestUnmarkedLocalVolume(t *testing.T) {
	for name, tt := range map[string]struct {
		made         uint64
		data, exists bool
		taken        bool
	}{
		"row without an epoch": {data: true, exists: true, taken: true},
		"row with an epoch":    {made: 7, data: true, exists: true},
		"empty":                {exists: true},
		"missing":              {},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVolumes(t.TempDir())
			a := copyAssignment(tt.made)
			a.Spec.Volumes[0].Kind, a.Held = model.VolumeLocal, []string{"data"}
			dir := v.dir(a, "data")
			if tt.exists {
				must(t, os.MkdirAll(dir, 0o700))
			}
			if tt.data {
				put(t, filepath.Join(dir, "rows"), "of a database that runs")
			}
			for range 2 {
				if err := v.prepare(a, account{}); (err == nil) != tt.taken {
					t.Fatalf("taken: %v, want %v; error: %v", err == nil, tt.taken, err)
				}
			}
			if note, _ := os.ReadFile(dir + "@copy"); tt.taken != (string(note) == "0\n") {
				t.Errorf("the mark is %q", note)
			}
			if text, _ := os.ReadFile(filepath.Join(dir, "rows")); tt.data && string(text) != "of a database that runs" {
				t.Errorf("the data is %q", text)
			}
		})
	}
}

// TestFreshVolumeInterrupted: the agent fails after it has put older data aside, and before it has recorded the epoch
// of the new volume. A restored state that expects the older data must not find an empty directory in its place.
func TestFreshVolumeInterrupted(t *testing.T) {
	v := newVolumes(t.TempDir())
	local := func(made uint64, held ...string) transport.Assignment {
		a := copyAssignment(made)
		a.Spec.Volumes[0].Kind, a.Held = model.VolumeLocal, held
		return a
	}
	must(t, v.prepare(local(7), account{}))
	dir := v.dir(local(7), "data")
	put(t, filepath.Join(dir, "rows"), "first")
	must(t, os.Mkdir(dir+"@copy.new", 0o700)) // so that the epoch can't be recorded
	if err := v.prepare(local(30), account{}); err == nil {
		t.Fatal("a volume is used without a note of its epoch")
	}
	must(t, os.Remove(dir+"@copy.new"))
	if err := v.prepare(local(7, "data"), account{}); err == nil && len(listed(t, dir)) == 0 {
		t.Error("an instance begins with nothing where the servers mean data that was put aside")
	}
	must(t, v.prepare(local(30), account{}))
	if got := listed(t, dir+"@7"); !slices.Equal(got, []string{"rows"}) {
		t.Errorf("what was put aside is %v", got)
	}
}
