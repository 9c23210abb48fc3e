package driver

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// cgroup1 maps each controller of version 1 (memory, cpu, cpuacct, pids, freezer) to its directory. Each of them may be
// missing.
type cgroup1 map[string]string

func (c cgroup1) limit(l Limits) error {
	if err := c.limitMemory(l.MemoryBytes); err != nil {
		return err
	}
	if dir, ok := c["cpu"]; ok && l.CPUShares > 0 {
		if err := writeCgroup(dir, "cpu.shares", l.CPUShares); err != nil {
			return err
		}
	}
	if dir, ok := c["pids"]; ok && l.PidsMax > 0 {
		return writeCgroup(dir, "pids.max", l.PidsMax)
	}
	return nil
}

// limitMemory limits memory. If the kernel accounts for swap, limitMemory sets the limit of memory plus swap to the
// same value, so that the program can't swap. The kernel refuses a memory limit above the limit of memory plus swap. A
// new cgroup has no limits, so memory must be limited first.
func (c cgroup1) limitMemory(bytes int64) error {
	dir, ok := c["memory"]
	if !ok || bytes == 0 {
		return nil
	}
	if err := writeCgroup(dir, "memory.limit_in_bytes", bytes); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "memory.memsw.limit_in_bytes")); err != nil {
		return nil
	}
	return writeCgroup(dir, "memory.memsw.limit_in_bytes", bytes)
}

// killAll freezes the cgroup before it kills, so that no process can fork meanwhile. The processes die when the cgroup
// is thawed. Without a freezer, killAll only kills.
func (c cgroup1) killAll(g *cgroup) error {
	dir, ok := c["freezer"]
	if !ok {
		return g.killEach()
	}
	c.freeze(dir)
	err := g.killEach()
	if terr := ignoreGone(writeCgroupString(dir, "freezer.state", "THAWED")); err == nil {
		err = terr
	}
	return err
}

const freezeTimeout = 100 * time.Millisecond

// freeze freezes the cgroup, and waits at most freezeTimeout until it is frozen. A process in uninterruptible sleep
// can't be frozen, but it can't fork either.
func (c cgroup1) freeze(dir string) {
	if writeCgroupString(dir, "freezer.state", "FROZEN") != nil {
		return
	}
	poll(freezeTimeout, time.Millisecond, func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "freezer.state"))
		return err != nil || strings.TrimSpace(string(b)) == "FROZEN"
	})
}

// noLimit1 is below the number that version 1 gives for a memory cgroup without a limit, which depends on the size of a
// page, and above the memory of any machine.
const noLimit1 = 1 << 60

func (c cgroup1) usage() (usage, error) {
	u := unknownUsage()
	if dir, ok := c["memory"]; ok {
		total, err := readCgroupInt(dir, "memory.usage_in_bytes")
		if err != nil {
			return u, err
		}
		cache, err := readCgroupKey(dir, "memory.stat", "total_inactive_file")
		if err != nil {
			return u, err
		}
		u.memory = max(0, total-cache)
		if u.oomKills, err = readCgroupKey(dir, "memory.oom_control", "oom_kill"); err != nil {
			return u, err
		}
		if u.memoryPeak, err = readCgroupOptional(dir, "memory.max_usage_in_bytes"); err != nil {
			return u, err
		}
		if u.memoryLimit, err = readCgroupOptional(dir, "memory.limit_in_bytes"); err != nil {
			return u, err
		}
	}
	if dir, ok := c["cpuacct"]; ok {
		ns, err := readCgroupInt(dir, "cpuacct.usage")
		if err != nil {
			return u, err
		}
		u.cpu = time.Duration(ns)
	}
	dir, ok := c["pids"]
	if !ok {
		return u, nil
	}
	err := u.readPids(dir)
	return u, err
}
