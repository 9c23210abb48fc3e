package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// A check must fail twice in a row to become a trouble, and pass five times in a row to be no trouble any more.
func TestSelfCheckHysteresis(t *testing.T) {
	c := newSelfChecks()
	bad, good := findings{model.SelfDiskFull: "no room"}, findings{}
	for i, step := range []struct {
		found findings
		wrong bool
		moved bool
	}{
		{bad, false, false}, {good, false, false}, {bad, false, false}, {bad, true, true}, {bad, true, false},
		{good, true, false}, {good, true, false}, {good, true, false}, {good, true, false}, {bad, true, false},
		{good, true, false}, {good, true, false}, {good, true, false}, {good, true, false},
		{good, false, true}, {good, false, false},
	} {
		troubles, moved := c.take(step.found)
		if (len(troubles) > 0) != step.wrong || moved != step.moved {
			t.Errorf("look %d: troubles %v, moved %t", i, troubles, moved)
		}
	}
	c.take(findings{model.SelfDiskSlow: "a", model.SelfDiskFull: "b"})
	troubles, _ := c.take(findings{model.SelfDiskSlow: "c", model.SelfDiskFull: "d"})
	want := []model.Trouble{{Check: model.SelfDiskFull, Reason: "d"}, {Check: model.SelfDiskSlow, Reason: "c"}}
	if !slices.Equal(troubles, want) {
		t.Errorf("two at once: %v, want %v", troubles, want)
	}
	if _, moved := c.take(findings{model.SelfDiskSlow: "e", model.SelfDiskFull: "f"}); moved {
		t.Error("another text of the same trouble is news")
	}
}

// A single jump of the wall clock may be a correction or a pause of the machine, and is no trouble. There is a trouble
// while the last minute contains at least two jumps.
func TestClockJumps(t *testing.T) {
	now := time.Now()
	c := clockCheck{last: now}
	for i, step := range []struct {
		after, gains time.Duration
		wrong        bool
	}{
		{3, 0, false}, {3, 3600, false}, {3, 0, false}, {61, 1, false}, {3, -3, false},
		{57, 5, true}, {3, 0, true}, {4, 0, false}, {60, 0, false}, {3, -2, false},
	} {
		mono := step.after * time.Second
		now = now.Add(mono)
		if reason := c.took(now, mono+step.gains*time.Second, mono); (reason != "") != step.wrong {
			t.Errorf("look %d: %q", i, reason)
		}
	}
}

// A write that hangs is reported as slow, and no other write is started until it has ended. A write that ended too late
// is reported as slow, too.
func TestSlowDisk(t *testing.T) {
	m := newMachineCheck(t.TempDir())
	if check, reason := m.write(); check != "" {
		t.Errorf("a healthy disk: %s %s", check, reason)
	}
	hangs := make(chan error, 1)
	m.writing, m.since = hangs, time.Now().Add(-selfWriteSlow)
	for range 2 {
		check, reason := m.write()
		if check != model.SelfDiskSlow || !strings.Contains(reason, selfWriteSlow.String()) || m.writing != hangs {
			t.Errorf("a write hangs: %s %s", check, reason)
		}
	}
	hangs <- nil
	for m.writing == hangs { // the time limit and the end of the write may coincide
		if check, _ := m.write(); check != model.SelfDiskSlow {
			t.Errorf("it took too long: %q", check)
		}
	}
	if check, reason := m.write(); check != "" {
		t.Errorf("it has recovered: %s %s", check, reason)
	}
}

// If the agent can't make cgroups any more, it reports a trouble.
func TestCgroupsLost(t *testing.T) {
	m := newMachineCheck(t.TempDir())
	m.cgroups = func() error { return os.ErrPermission }
	if found := m.look(); !strings.Contains(found[model.SelfCgroup], "permission denied") || len(found) > 1 {
		t.Errorf("found %v", found)
	}
	m.cgroups = func() error { return nil }
	if found := m.look(); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}

// The file system of the data directory is full, recovers, can't be written, and recovers again. The servers get each
// trouble with its reason.
func TestSelfChecksOnSmallDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to mount a small file system")
	}
	b := newBench(t, allowRoot, func(c *Config) {
		c.SelfCheckEvery = 50 * time.Millisecond
		must(t, os.MkdirAll(c.DataDir, 0o711))
		if err := unix.Mount("tmpfs", c.DataDir, "tmpfs", 0, "size=16m"); err != nil {
			t.Skipf("skipped: no right to mount a small file system: %v", err)
		}
	})
	data := b.cfg.DataDir
	t.Cleanup(func() { _ = unix.Unmount(data, unix.MNT_DETACH) })
	await := func(check model.SelfCheck, words string) {
		t.Helper()
		eventually(t, "the node's troubles to be "+string(check), func() bool {
			n := b.row()
			if check == "" {
				return !n.Troubled()
			}
			alone := len(n.Self.Troubles) == 1 && n.Self.Troubles[0].Check == check
			return alone && strings.Contains(n.Self.Words(), words) && n.State() == model.NodeDegraded
		})
	}
	room := fill(t, data)
	await(model.SelfDiskFull, "is full")
	b.stopAgent()
	before := b.m.State().Index
	b.launch() // start would wait until the node is eligible
	eventually(t, "the next agent's word", func() bool {
		n := b.row()
		return n.Agent.Incarnation == b.agent.Identity().Incarnation && n.Self.Gen > 0
	})
	for _, e := range b.m.State().Events.All() {
		if e.Key.Index() > before && e.Type == model.EventNodeChecks && e.After != string(model.SelfDiskFull) {
			t.Errorf("an agent that restarts on a full disk: %s -> %s", e.Before, e.After)
		}
	}
	room()
	await("", "")
	probe := filepath.Join(data, "self-check")
	must(t, os.Remove(probe))
	must(t, os.Mkdir(probe, 0o700)) // so that writes fail; a file system with an open journal can't become read-only
	await(model.SelfDiskWrite, "can't be written")
	must(t, os.Remove(probe))
	await("", "")
}

func (b *bench) row() *fsm.Node {
	n, ok := b.m.State().Nodes.Get(b.agent.Identity().Node)
	if !ok {
		b.t.Fatal("the node is not known")
	}
	return n
}
