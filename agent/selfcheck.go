package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

const (
	selfCheckEvery = 3 * time.Second
	// A check becomes a trouble after selfBad failures in a row. The trouble is over after selfGood passes in a row.
	selfBad  = 2
	selfGood = 5
	// Every selfWriteEvery-th round also writes a file and makes a cgroup. If such a round finds a failure, the next round
	// does both too.
	selfWriteEvery = 3
	// selfWriteSlow is how long a small write may take to reach the disk of the data directory.
	selfWriteSlow = 5 * time.Second
)

// findings has the checks that fail now, each with the reason.
type findings map[model.SelfCheck]string

// selfChecks turns the results of rounds into troubles that are reported. Only one goroutine may use it.
type selfChecks struct {
	counts map[model.SelfCheck]*selfCount
	last   []model.Trouble
}

type selfCount struct {
	bad, good int    // failures and passes in a row
	reason    string // of the trouble; "" while the check is no trouble
}

func newSelfChecks() *selfChecks {
	c := &selfChecks{counts: map[model.SelfCheck]*selfCount{}}
	for _, check := range model.SelfChecks() {
		c.counts[check] = &selfCount{}
	}
	return c
}

// take counts the findings of one round. It returns the present troubles, and whether they changed. A trouble keeps its
// first reason.
func (c *selfChecks) take(found findings) (troubles []model.Trouble, moved bool) {
	for _, check := range model.SelfChecks() {
		n := c.counts[check]
		if reason, failed := found[check]; failed {
			n.bad, n.good = n.bad+1, 0
			if n.bad >= selfBad && n.reason == "" {
				n.reason = reason
			}
		} else {
			n.bad, n.good = 0, n.good+1
			if n.good >= selfGood {
				n.reason = ""
			}
		}
		if n.reason != "" {
			troubles = append(troubles, model.Trouble{Check: check, Reason: n.reason})
		}
	}
	moved = !slices.Equal(troubles, c.last)
	c.last = troubles
	return troubles, moved
}

// startFull puts disk_full into the first report, if the data directory is full and self-checks are on. Otherwise an
// agent that restarts on a full disk would seem healthy until its first checks have been made.
func (a *Agent) startFull(checks *selfChecks) {
	reason := roomIn(a.home.dir, false)
	if reason == "" || a.cfg.SelfCheckEvery < 0 {
		return
	}
	checks.counts[model.SelfDiskFull].bad = selfBad - 1
	troubles, _ := checks.take(findings{model.SelfDiskFull: reason})
	a.log.Warn("this machine has troubles", "troubles", troubles)
	a.shared.reports.setSelf(troubles)
}

// keepChecked checks the machine until ctx ends, and reports its troubles. It does nothing if self-checks are off.
func (a *Agent) keepChecked(ctx context.Context, checks *selfChecks) {
	if a.cfg.SelfCheckEvery < 0 {
		return
	}
	m := newMachineCheck(a.home.dir)
	if r, ok := a.cfg.Runtime.(interface{ CheckCgroups() error }); ok {
		m.cgroups = r.CheckCgroups
	}
	for sleep(ctx, a.cfg.SelfCheckEvery, nil) {
		found := m.look()
		troubles, moved := checks.take(found)
		if !moved {
			continue
		}
		level, text := hclog.Warn, "this machine has troubles"
		if len(troubles) == 0 {
			level, text = hclog.Info, "this machine has no troubles any more"
		}
		a.log.Log(level, text, "troubles", troubles)
		a.shared.reports.setSelf(troubles)
	}
}

// machineCheck makes the self-checks of one agent, in rounds. Only one goroutine may use it.
type machineCheck struct {
	dir     string
	cgroups func() error // makes and removes a cgroup

	round   int
	again   bool // the last round with a write found a failure, so the next round writes too
	full    bool // the data directory was full in the last round
	clock   clockCheck
	writing chan error // result of the running write; nil if no write runs
	since   time.Time  // when the running write began
}

func newMachineCheck(dir string) *machineCheck {
	return &machineCheck{dir: dir, cgroups: func() error { return nil }, clock: clockCheck{last: time.Now()}}
}

// look runs one round of checks and returns those that fail. It takes at most about selfWriteSlow.
func (m *machineCheck) look() findings {
	found := findings{}
	if reason := m.clock.look(time.Now()); reason != "" {
		found[model.SelfClockJumps] = reason
	}
	reason := roomIn(m.dir, m.full)
	if m.full = reason != ""; m.full {
		found[model.SelfDiskFull] = reason
	}
	due := m.round%selfWriteEvery == 0
	m.round++
	if !due && !m.again {
		return found
	}
	if err := m.cgroups(); err != nil {
		found[model.SelfCgroup] = fmt.Sprintf("a cgroup can't be made: %v", err)
	}
	if check, reason := m.write(); check != "" && !(check == model.SelfDiskWrite && m.full) {
		found[check] = reason
	}
	m.again = len(found) > 0
	return found
}

// write writes a small file and waits until the disk has it, for at most selfWriteSlow. It returns the check that
// failed and why, or two empty strings. A write that hangs continues in the background. No other write is started
// before it ends.
func (m *machineCheck) write() (check model.SelfCheck, reason string) {
	if m.writing == nil {
		m.since = time.Now()
		m.writing = make(chan error, 1)
		go func(done chan<- error) { done <- writeProbe(m.dir) }(m.writing)
	}
	limit := time.NewTimer(selfWriteSlow - time.Since(m.since))
	defer limit.Stop()
	select {
	case err := <-m.writing:
		m.writing = nil
		switch {
		case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
			return model.SelfDiskFull, fmt.Sprintf("the data directory %s is full", m.dir)
		case err != nil:
			return model.SelfDiskWrite, fmt.Sprintf("the data directory can't be written: %v", err)
		case time.Since(m.since) < selfWriteSlow:
			return "", ""
		}
	case <-limit.C:
	}
	return model.SelfDiskSlow, fmt.Sprintf("a write to the data directory %s took more than %s", m.dir, selfWriteSlow)
}

// writeProbe writes the file self-check. lastRun takes the file's time as a sign that the agent was alive.
func writeProbe(dir string) error {
	f, err := os.OpenFile(dir+"/self-check", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// A file system is regarded as full if its free bytes are below fullBytes and below fullPercent percent of all bytes,
// or if its free inodes are below fullInodes and below fullPercent percent of all inodes. From then on, twice as much
// must be free before the file system is regarded as not full.
const (
	fullBytes   = 64 << 20
	fullInodes  = 1024
	fullPercent = 2
)

// roomIn returns why the file system of dir is regarded as full. It returns "" if the file system is not full, or if
// statfs fails. was is true if the file system was full at the last call.
func roomIn(dir string, was bool) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Blocks == 0 {
		return ""
	}
	lacks := func(free, total, least uint64) bool {
		least = min(least, total*fullPercent/100)
		if was {
			least *= 2
		}
		return free < least
	}
	size := uint64(st.Bsize) //nolint:gosec // it is positive
	switch {
	case lacks(st.Bavail*size, st.Blocks*size, fullBytes):
		return fmt.Sprintf("the data directory %s is full: %d MiB of %d MiB are free",
			dir, st.Bavail*size>>20, st.Blocks*size>>20)
	case st.Files > 0 && lacks(st.Ffree, st.Files, fullInodes):
		return fmt.Sprintf("the data directory %s is full: %d of %d inodes are free", dir, st.Ffree, st.Files)
	}
	return ""
}

// The wall clock jumps when it gains or loses at least clockJump against the monotonic clock between two rounds. A
// single jump is normal, after a correction or a pause of the machine. Two jumps within clockWindow are a trouble.
const (
	clockJump   = 2 * time.Second
	clockWindow = time.Minute
)

// clockCheck compares the wall clock with the monotonic clock.
type clockCheck struct {
	last  time.Time
	jumps []time.Time // times of the latest jumps, the newest last
}

// look compares both clock readings in now with those of the last round. It returns what is wrong, or "" if nothing is.
func (c *clockCheck) look(now time.Time) string {
	wall, mono := now.Round(0).Sub(c.last.Round(0)), now.Sub(c.last)
	return c.took(now, wall, mono)
}

func (c *clockCheck) took(now time.Time, wall, mono time.Duration) string {
	c.last = now
	if off := wall - mono; off >= clockJump || off <= -clockJump {
		c.jumps = append(c.jumps, now)
	}
	c.jumps = slices.DeleteFunc(c.jumps, func(at time.Time) bool { return now.Sub(at) > clockWindow })
	if len(c.jumps) < 2 {
		return ""
	}
	return "the wall clock jumps: it is set again and again"
}
