package driver_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
)

// needCgroup skips the test unless this process may use a memory cgroup.
func needCgroup(t *testing.T, b *bench) {
	t.Helper()
	if !b.d.Capabilities().MemoryCap {
		t.Skip("skipped: needs root and a memory cgroup")
	}
}

func TestCapabilities(t *testing.T) {
	with, without := newBench(t), newBench(t, noCgroups)
	c := without.d.Capabilities()
	if c.CgroupVersion != 0 || c.MemoryCap || c.CPUWeight || c.PidsMax {
		t.Errorf("without cgroups: %+v", c)
	}
	if !slices.ContainsFunc(c.Notes, func(n string) bool { return strings.HasPrefix(n, "memory caps not enforced") }) {
		t.Errorf("notes = %q", c.Notes)
	}
	if c = with.d.Capabilities(); c.OtherUsers != (os.Geteuid() == 0) {
		t.Errorf("other users = %v", c.OtherUsers)
	}
	if c.MemoryCap == slices.ContainsFunc(c.Notes, func(n string) bool {
		return strings.HasPrefix(n, "memory caps not enforced")
	}) {
		t.Errorf("memory cap = %v, notes = %q", c.MemoryCap, c.Notes)
	}
	if os.Geteuid() != 0 && (c.CgroupVersion != 0 || !strings.Contains(strings.Join(c.Notes, ";"), "no cgroup access")) {
		t.Errorf("unprivileged: %+v", c)
	}
}

func TestOOM(t *testing.T) {
	b := newBench(t)
	needCgroup(t, b)
	program := filepath.Join(openDir(t), "program")
	exe, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(program, exe, 0o755))
	grow := func(s *driver.Spec) {
		s.Command, s.Args = program, []string{"helper", "grow"}
		s.Limits.MemoryBytes = 48 << 20
	}
	task, e := b.run("", grow)
	if e.Reason != driver.ReasonOOMKilled || !e.OOMKilled || e.Code != 137 || !e.Failed() {
		t.Errorf("exit = %+v, %s", e, b.logs(task, driver.Stderr))
	}
	// A child of the shell is killed, and the shell exits with the child's code.
	_, e = b.run(program+" helper grow; exit $?", func(s *driver.Spec) { s.Limits.MemoryBytes = 48 << 20 })
	if e.Reason != driver.ReasonOOMKilled || !e.OOMKilled {
		t.Errorf("exit of the shell = %+v", e)
	}
	// A child of the shell is killed, and the shell continues.
	_, e = b.run(program+" helper grow; exit 0", func(s *driver.Spec) { s.Limits.MemoryBytes = 48 << 20 })
	if b.d.Capabilities().CgroupVersion == 1 && (e.Reason != driver.ReasonExited || !e.OOMKilled || e.Code != 0) {
		t.Errorf("exit of the coping shell = %+v", e)
	}
	// A SIGKILL that the program sends to itself is not reported as out of memory.
	_, e = b.run("kill -KILL $$", func(s *driver.Spec) { s.Limits.MemoryBytes = 48 << 20 })
	if e.Reason != driver.ReasonSignaled || e.OOMKilled {
		t.Errorf("exit after kill -9 = %+v", e)
	}
}

// The smallest limits that Spec allows let a program start.
func TestSmallestLimits(t *testing.T) {
	b := newBench(t)
	needCgroup(t, b)
	for range 2 {
		task, e := b.run("echo fine", func(s *driver.Spec) {
			s.Limits = driver.Limits{MemoryBytes: driver.MinMemoryBytes, PidsMax: driver.MinPids, CPUShares: 2}
		})
		if out := b.logs(task, driver.Stdout); e.Code != 0 || out != "fine\n" {
			t.Fatalf("exit = %+v, stdout = %q, stderr = %q", e, out, b.logs(task, driver.Stderr))
		}
	}
}

func TestPidsMax(t *testing.T) {
	b := newBench(t)
	needCgroup(t, b)
	if !b.d.Capabilities().PidsMax {
		t.Skip("skipped: needs root and a pids cgroup")
	}
	task := b.start(b.sh(`i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i+1)); done; echo all; wait`,
		func(s *driver.Spec) { s.Limits.PidsMax = 20 }))
	eventually(t, "the limit to be met", func() bool {
		return strings.Contains(strings.ToLower(b.logs(task, driver.Stderr)), "fork")
	})
	if s, err := task.Stats(); err == nil && s.Processes > 20 {
		t.Errorf("%d processes with a limit of 20", s.Processes)
	}
	if strings.Contains(b.logs(task, driver.Stdout), "all") {
		t.Error("all 60 were started")
	}
}

// The kernel's files show that the limits are set, and that the program is in the cgroup but the shim is not.
func TestCgroupMembers(t *testing.T) {
	b := newBench(t)
	needCgroup(t, b)
	task := b.start(b.sh("sleep 1000 & exec sleep 1000", func(s *driver.Spec) {
		s.Limits = driver.Limits{MemoryBytes: 64 << 20, CPUShares: 250, PidsMax: 50}
	}))
	own := cgroupsOf(t, task.Process().PID)
	shim := cgroupsOf(t, parent(t, task.Process().PID))
	inside := 0
	for controller, path := range own {
		if !strings.Contains(path, b.cfg.CgroupParent) {
			continue
		}
		inside++
		if strings.Contains(shim[controller], b.cfg.CgroupParent) {
			t.Errorf("the shim is inside %s", shim[controller])
		}
	}
	if inside == 0 {
		t.Fatalf("the program is in no cgroup of ours: %v", own)
	}
	for file, want := range map[string]string{"memory.limit_in_bytes": "67108864",
		"memory.memsw.limit_in_bytes": "67108864", "memory.max": "67108864", "cpu.shares": "250", "pids.max": "50"} {
		for _, path := range own {
			if !strings.Contains(path, b.cfg.CgroupParent) {
				continue
			}
			found, _ := filepath.Glob("/sys/fs/cgroup/*" + path + "/" + file)
			for _, f := range found {
				if got, _ := os.ReadFile(f); strings.TrimSpace(string(got)) != want {
					t.Errorf("%s = %q, want %s", f, got, want)
				}
			}
		}
	}
	eventually(t, "both processes to be counted", func() bool {
		s, err := task.Stats()
		return err == nil && s.Processes == 2 && s.MemoryBytes > 0
	})
}

func cgroupsOf(t *testing.T, pid int) map[string]string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	must(t, err)
	m := make(map[string]string)
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		m[f[1]] = f[2]
	}
	return m
}

// If a process from outside is moved into the cgroup of an instance, a stop of the instance kills that process too.
func TestStrangerInCgroup(t *testing.T) {
	b := newBench(t)
	needCgroup(t, b)
	task := b.start(b.sh("exec sleep 1000"))
	stranger := b.start(b.sh("trap '' TERM; echo ready; while :; do sleep 0.01; done"))
	b.says(stranger, "ready")
	for controller, path := range cgroupsOf(t, task.Process().PID) {
		if strings.Contains(path, b.cfg.CgroupParent) {
			dirs, _ := filepath.Glob("/sys/fs/cgroup/*" + path)
			for _, dir := range dirs {
				if strings.Contains(dir, "/"+strings.Split(controller, ",")[0]+"/") || controller == "" {
					must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(stranger.Process().PID)), 0))
				}
			}
		}
	}
	stop(t, task, 0, 200*time.Millisecond)
	goneAll(t, []int{stranger.Process().PID})
	if e, _ := task.Exit(); e.Reason != driver.ReasonKilledAfterGrace {
		t.Errorf("exit = %+v", e)
	}
}

func TestStatsWithoutCgroup(t *testing.T) {
	b := newBench(t, noCgroups)
	task := b.start(b.sh("sleep 1000 & while :; do :; done"))
	eventually(t, "cpu time, memory and two processes", func() bool {
		s, err := task.Stats()
		return err == nil && s.Processes == 2 && s.MemoryBytes > 0 && s.CPU > 0
	})
	stop(t, task, 0, 0)
	_, err := task.Stats()
	wantCode(t, err, driver.CodeNotRunning)
}

// A shim has at most 12 MiB of memory of its own.
func TestShimMemory(t *testing.T) {
	b := newBench(t)
	task := b.start(b.sh("head -c 2000000 /dev/zero; exec sleep 1000"))
	eventually(t, "2 MB of output", func() bool { return len(b.logs(task, driver.Stdout)) == 2000000 })
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", parent(t, task.Process().PID)))
	if err != nil {
		t.Skipf("skipped: the kernel does not tell the memory of a process: %v", err)
	}
	kb := make(map[string]int)
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 {
			kb[f[0]], _ = strconv.Atoi(f[1])
		}
	}
	t.Logf("a shim has %d kB resident, %d kB proportional, %d kB its own", kb["Rss:"], kb["Pss:"], kb["Private_Dirty:"])
	if kb["Private_Dirty:"] > 12<<10 && !raceDetector {
		t.Errorf("a shim has %d kB of its own", kb["Private_Dirty:"])
	}
}
