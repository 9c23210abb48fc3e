package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

// watched is a disk watch without disks: the test sets what a measurement returns.
type watched struct {
	diskWatch
	limits map[model.InstanceID]int64
	uses   map[string]diskUse
	fails  bool
	heard  []string // the reports, abbreviated
}

func newWatched() *watched {
	w := &watched{limits: map[model.InstanceID]int64{}, uses: map[string]diskUse{}}
	w.diskWatch = diskWatch{
		list: func() (list []limited) {
			for _, id := range sortedKeys(w.limits) {
				list = append(list, limited{id, w.limits[id]})
			}
			return list
		},
		dir: func(id model.InstanceID) string { return "/instances/" + string(id) },
		measure: func(_ context.Context, dir string) (diskUse, error) {
			if w.fails {
				return diskUse{}, errors.New("the disk is ill")
			}
			return w.uses[dir], nil
		},
		tell: func(list []model.DiskUse) {
			text := "above:"
			for _, u := range list {
				text += fmt.Sprintf(" %s %d/%d", u.ID, u.UsedBytes, u.LimitBytes)
				if u.AtLeast {
					text += "+"
				}
			}
			w.heard = append(w.heard, text)
		},
		log: hclog.NewNullLogger(), above: map[model.InstanceID]model.DiskUse{}, unsure: map[model.InstanceID]bool{},
	}
	return w
}

// After the first round, the instances above their limits are reported. Later there is a report only if an instance
// crosses its limit, if its limit changes, or if its use has changed by more than an eighth.
func TestDiskWatch(t *testing.T) {
	w := newWatched()
	for _, step := range []struct {
		name   string
		change func()
		want   []string
	}{
		{"nobody has a limit", func() {}, nil},
		{"the first look", func() { w.limits["a"], w.limits["b"] = 100, 100 }, []string{"above:"}},
		{"nothing new", func() {}, nil},
		{"at its limit", func() { w.uses["/instances/a"] = diskUse{bytes: 100} }, nil},
		{"above it", func() { w.uses["/instances/a"] = diskUse{bytes: 101} }, []string{"above: a 101/100"}},
		{"a little more", func() { w.uses["/instances/a"] = diskUse{bytes: 113} }, nil},
		{"much more", func() { w.uses["/instances/a"] = diskUse{bytes: 114} }, []string{"above: a 114/100"}},
		{"less", func() { w.uses["/instances/a"] = diskUse{bytes: 101, partial: true} }, nil},
		{"the other one too", func() {
			w.uses["/instances/b"] = diskUse{bytes: 800, partial: true}
		}, []string{"above: a 114/100 b 800/100+"}},
		{"not to be measured", func() { w.fails = true }, nil},
		{"another limit", func() { w.fails, w.limits["b"] = false, 700 }, []string{"above: a 114/100 b 800/700+"}},
		{"below it", func() { w.uses["/instances/a"] = diskUse{bytes: 1} }, []string{"above: b 800/700+"}},
		{"gone", func() { delete(w.limits, "b") }, []string{"above:"}},
		{"perhaps", func() { w.uses["/instances/a"] = diskUse{bytes: 1, partial: true} }, nil},
	} {
		w.heard = nil
		step.change()
		w.look(t.Context())
		if !slices.Equal(w.heard, step.want) {
			t.Errorf("%s: told %q, want %q", step.name, w.heard, step.want)
		}
	}
	if !w.unsure["a"] || len(w.unsure) != 1 {
		t.Errorf("unsure of %v", w.unsure)
	}
	delete(w.limits, "a")
	if w.look(t.Context()); len(w.unsure) > 0 {
		t.Errorf("unsure of %v, which is gone", w.unsure)
	}
}

// The first round reports nothing before its end, because a report replaces everything that an earlier agent has
// reported. In later rounds, a change is reported before the remaining instances are measured.
func TestDiskWatchTellsAtOnce(t *testing.T) {
	w := newWatched()
	w.limits["a"], w.limits["b"], w.limits["c"] = 10, 10, 10
	w.uses["/instances/a"], w.uses["/instances/b"] = diskUse{bytes: 20}, diskUse{bytes: 20}
	if w.look(t.Context()); !slices.Equal(w.heard, []string{"above: a 20/10 b 20/10"}) {
		t.Errorf("told %q", w.heard)
	}
	w.heard, w.uses["/instances/a"] = nil, diskUse{}
	measure := w.measure
	w.measure = func(ctx context.Context, dir string) (diskUse, error) {
		if dir == "/instances/c" && !slices.Equal(w.heard, []string{"above: b 20/10"}) {
			t.Errorf("before the last one %q was told", w.heard)
		}
		return measure(ctx, dir)
	}
	w.look(t.Context())
}

// After a restart, the first report waits until every instance was measured, because the servers forget the instances
// that it lacks. If an instance can't be measured, the first report is sent in round diskTries without it.
func TestDiskWatchWaitsForAMeasurement(t *testing.T) {
	for name, tt := range map[string]struct {
		failing int // number of rounds, from the first, in which instance "a" can't be measured
		want    []string
	}{
		"once":      {1, []string{"above: a 20/10 b 20/10"}},
		"for ever":  {100, []string{"above: b 20/10"}},
		"and later": {diskTries + 1, []string{"above: b 20/10", "above: a 20/10 b 20/10"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatched()
			w.limits["a"], w.limits["b"] = 10, 10
			w.uses["/instances/a"], w.uses["/instances/b"] = diskUse{bytes: 20}, diskUse{bytes: 20}
			measure, round := w.measure, 0
			w.measure = func(ctx context.Context, dir string) (diskUse, error) {
				if round <= tt.failing && dir == "/instances/a" {
					return diskUse{}, errors.New("the disk is ill")
				}
				return measure(ctx, dir)
			}
			for round = 1; round <= diskTries+3; round++ {
				if w.look(t.Context()); round < min(diskTries, tt.failing+1) && len(w.heard) > 0 {
					t.Errorf("in round %d it told %q", round, w.heard)
				}
			}
			if !slices.Equal(w.heard, tt.want) {
				t.Errorf("told %q, want %q", w.heard, tt.want)
			}
		})
	}
}

// If more instances are above their limits than a report can list, those that use the most space are reported.
func TestDiskWatchTellsTheLargest(t *testing.T) {
	w := newWatched()
	var told []model.DiskUse
	w.tell = func(list []model.DiskUse) { told = list }
	for i := range int64(model.MaxDiskUses + 1) {
		id := model.InstanceID(fmt.Sprintf("i%03d", i))
		w.limits[id], w.uses["/instances/"+string(id)] = 1, diskUse{bytes: 10 + i}
	}
	w.look(t.Context())
	if len(told) != model.MaxDiskUses || told[0].ID != "i001" {
		t.Errorf("%d were told, first %s", len(told), told[0].ID)
	}
}

// A measurement on a disk that hangs returns when its context ends, so it does not delay the stop of the agent.
func TestDiskThatHangs(t *testing.T) {
	hangs := make(chan struct{})
	measure := inBackground(func(context.Context, string) (diskUse, error) { <-hangs; return diskUse{}, nil })
	defer close(hangs)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := measure(ctx, "/"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it returned %v", err)
	}
}

// An instance whose program writes more than its disk limit is reported, and not stopped. It stays reported after a
// restart of the agent, until the program has made room. An instance within its limit is not reported.
func TestProgramAboveItsDiskLimit(t *testing.T) {
	b := newBench(t, allowRoot, func(c *Config) { c.DiskCheckEvery = 50 * time.Millisecond })
	flag := filepath.Join(b.dir, "make-room")
	g := sh("head -c 3000000 /dev/zero > grown; while ! [ -e " + flag +
		" ]; do sleep 0.05; done; rm grown; exec sleep 1000")
	g.Resources.DiskBytes = 2 << 20
	big := b.run("big", g, nil)
	roomy := sh("head -c 1000000 /dev/zero > grown; head -c 3000000 /dev/zero >&2; exec sleep 1000")
	roomy.Resources.DiskBytes = 2 << 20
	small := b.run("small", roomy, nil)
	above := func(id model.InstanceID) (model.DiskUse, bool) {
		st, i := b.m.State(), b.instance(id)
		return st.DiskUse(&i)
	}
	b.await(small, model.ObservedReady)
	b.await(big, model.ObservedReady)
	eventually(t, "the instance to be above its limit", func() bool {
		use, is := above(big)
		return is && use.UsedBytes > 2900000 && use.UsedBytes < 3200000 && use.LimitBytes == 2<<20 && !use.AtLeast
	})
	use, _ := above(big)
	if _, err := os.Stat(filepath.Join(use.Dir, "grown")); err != nil {
		t.Error(err)
	}
	b.stopAgent()
	b.cfg.DiskCheckEvery = time.Second // so that the new agent sends reports before it has measured
	b.start()
	if _, is := above(big); !is {
		t.Error("the next agent took it back")
	}
	if i := b.instance(big); i.Status.Observed != model.ObservedReady || i.Status.Restarts > 0 {
		t.Errorf("it is %+v", i.Status)
	}
	if _, is := above(small); is {
		t.Error("its neighbour is above its limit")
	}
	must(t, os.WriteFile(flag, nil, 0o600))
	eventually(t, "it to be below its limit", func() bool { _, is := above(big); return !is })
	var told []string
	for _, e := range b.m.State().Events.All() {
		if e.Type == model.EventDisk {
			told = append(told, e.Subject+" "+e.After)
		}
	}
	if want := []string{"instance/" + string(big) + " above_limit",
		"instance/" + string(big) + " within_limit"}; !slices.Equal(told, want) {
		t.Errorf("events: %q, want %q", told, want)
	}
}

// When a data directory is full, the servers learn which instance uses the most space.
func TestWhoFillsTheDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to mount a small file system")
	}
	b := newBench(t, allowRoot, func(c *Config) {
		c.SelfCheckEvery, c.DiskCheckEvery = 50*time.Millisecond, 50*time.Millisecond
		must(t, os.MkdirAll(c.DataDir, 0o711))
		if err := unix.Mount("tmpfs", c.DataDir, "tmpfs", 0, "size=16m"); err != nil {
			t.Skipf("skipped: no right to mount a small file system: %v", err)
		}
	})
	data := b.cfg.DataDir
	t.Cleanup(func() { _ = unix.Unmount(data, unix.MNT_DETACH) })
	small := b.run("small", sh("head -c 1048576 /dev/zero > grown; exec sleep 1000"), nil)
	big := b.run("big", sh("head -c 3145728 /dev/zero > grown; exec sleep 1000"), nil)
	b.await(small, model.ObservedReady)
	b.await(big, model.ObservedReady)
	b.await(big, model.ObservedReady)
	room := fill(t, data)
	eventually(t, "the instance that uses most to be named", func() bool {
		return strings.HasSuffix(b.row().Self.Words(),
			"; the largest work directory is that of instance "+string(big)+", with 3MiB")
	})
	room()
	eventually(t, "the node to be well", func() bool { return !b.row().Troubled() })
	fill(t, data)
	eventually(t, "the instance to be named again", func() bool {
		return strings.Contains(b.row().Self.Words(), string(big))
	})
}
