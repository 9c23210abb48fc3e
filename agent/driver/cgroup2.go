package driver

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// cgroup2 is the directory of a cgroup of version 2. A controller that is not enabled has no files there.
type cgroup2 string

func (c cgroup2) limit(l Limits) error {
	if l.MemoryBytes > 0 {
		if err := writeCgroup(string(c), "memory.max", l.MemoryBytes); err != nil {
			return err
		}
		// The program can't swap, and an out-of-memory kill ends the whole instance, not only one process.
		for file, value := range map[string]int64{"memory.swap.max": 0, "memory.oom.group": 1} {
			if err := writeCgroup(string(c), file, value); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	if l.CPUShares > 0 && c.has("cpu.weight") {
		if err := writeCgroup(string(c), "cpu.weight", cpuWeight(l.CPUShares)); err != nil {
			return err
		}
	}
	if l.PidsMax > 0 && c.has("pids.max") {
		return writeCgroup(string(c), "pids.max", l.PidsMax)
	}
	return nil
}

func (c cgroup2) has(file string) bool {
	_, err := os.Stat(filepath.Join(string(c), file))
	return err == nil
}

// cpuWeight maps cpu.shares (2..262144) to cpu.weight (1..10000), as systemd and the container runtimes do.
func cpuWeight(shares int64) int64 { return 1 + (shares-2)*9999/262142 }

// killAll uses cgroup.kill (Linux 5.14), which is atomic. On older kernels it calls killFrozen.
func (c cgroup2) killAll(g *cgroup) error {
	err := writeCgroup(string(c), "cgroup.kill", 1)
	if err == nil || !errors.Is(err, fs.ErrNotExist) || !c.has("cgroup.procs") {
		return ignoreGone(err)
	}
	return c.killFrozen(g)
}

// killFrozen freezes the cgroup while it kills, so that no process can fork.
func (c cgroup2) killFrozen(g *cgroup) error {
	if writeCgroup(string(c), "cgroup.freeze", 1) == nil {
		c.awaitFrozen()
		defer func() { _ = writeCgroup(string(c), "cgroup.freeze", 0) }()
	}
	return g.killEach()
}

func (c cgroup2) awaitFrozen() {
	poll(freezeTimeout, time.Millisecond, func() bool {
		n, err := readCgroupKey(string(c), "cgroup.events", "frozen")
		return err != nil || n == 1
	})
}

func (c cgroup2) usage() (usage, error) {
	u, dir := unknownUsage(), string(c)
	us, err := readCgroupKey(dir, "cpu.stat", "usage_usec")
	if err != nil {
		return u, err
	}
	u.cpu = time.Duration(us) * time.Microsecond
	if err := u.readPids(dir); err != nil {
		return u, err
	}
	total, err := readCgroupInt(dir, "memory.current")
	if err != nil {
		return u, ignoreGone(err) // the memory controller is not enabled
	}
	cache, err := readCgroupKey(dir, "memory.stat", "inactive_file")
	if err != nil {
		return u, err
	}
	u.memory = max(0, total-cache)
	if u.memoryPeak, err = readCgroupOptional(dir, "memory.peak"); err != nil { // since Linux 5.19
		return u, err
	}
	if u.memoryLimit, err = readCgroupOptional(dir, "memory.max"); err != nil {
		return u, err
	}
	u.oomKills, err = readCgroupKey(dir, "memory.events", "oom_kill")
	return u, err
}
