package driver_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
)

// cpuOf returns the CPU time that the kernel counts for one process, and for the children that it has reaped.
func cpuOf(t *testing.T, pid int) (own, children time.Duration) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	f := strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+1:])
	ticks := func(n int) time.Duration {
		v, err := strconv.Atoi(f[n-3])
		must(t, err)
		return time.Duration(v) * time.Second / 100
	}
	return ticks(14) + ticks(15), ticks(16) + ticks(17)
}

// slack is for the clock ticks that /proc counts, and for what the kernel adds up only now and then.
const slack = 60 * time.Millisecond

// wantBusy compares what a task uses with what the kernel says of pid, its only busy process.
func wantBusy(t *testing.T, task *driver.Task, pid int) {
	t.Helper()
	look := func() (before, stats, after time.Duration) {
		before, _ = cpuOf(t, pid)
		time.Sleep(slack) // without cgroups, the numbers may be as old as that
		s, err := task.Stats()
		must(t, err)
		time.Sleep(slack)
		after, _ = cpuOf(t, pid)
		return before, s.CPU, after
	}
	awaitUse := func(least time.Duration) {
		eventually(t, fmt.Sprintf("the loop to have used %v", least), func() bool {
			now, _ := cpuOf(t, pid)
			return now > least
		})
	}
	early, _ := cpuOf(t, pid) // includes what the process used before it was in its cgroup
	awaitUse(early + time.Second/2)
	before, first, after := look()
	awaitUse(after + time.Second/2)
	before2, second, after2 := look()
	if used := second - first; used < before2-after-slack || used > after2-before+slack {
		t.Errorf("it used %v, the kernel says %v to %v", used, before2-after, after2-before)
	}
	if second < before2-early-slack {
		t.Errorf("it used %v in all, the kernel says %v", second, before2-early)
	}
}

func TestKindsStats(t *testing.T) {
	kinds(t, func(t *testing.T, k kind) {
		needCgroup(t, k.bench)
		begin := driver.BootNow()
		task := k.start(k.script("echo ready; while :; do :; done", func(s *driver.Spec) {
			s.Limits.MemoryBytes, s.Limits.PidsMax = 64<<20, 40
		}))
		k.says(task, "ready")
		s, err := task.Stats()
		if err != nil || !s.Cgroup || s.Processes != 1 || s.Threads < 1 || s.ThreadLimit < 40 ||
			s.MemoryLimit != 64<<20 || s.MemoryBytes <= 0 || s.MemoryBytes > s.MemoryLimit {
			t.Errorf("stats = %+v, %v", s, err)
		}
		if s.MemoryPeak != driver.Unknown && s.MemoryPeak < s.MemoryBytes {
			t.Errorf("at most %d bytes were used, now it is %d", s.MemoryPeak, s.MemoryBytes)
		}
		if since := time.Duration(driver.BootNow() - begin); s.Uptime < 0 || s.Uptime > since+slack {
			t.Errorf("it has run for %v, but was started %v ago", s.Uptime, since)
		}
		busy := task.Process().PID
		if k.root != "" { // the child of the container's init
			lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", busy))
			must(t, err)
			var children string
			for _, l := range lists {
				b, err := os.ReadFile(l)
				must(t, err)
				children += string(b)
			}
			busy, err = strconv.Atoi(strings.TrimSpace(children))
			must(t, err)
		}
		wantBusy(t, task, busy)
		stop(t, task, 0, 0)
		_, err = task.Stats()
		wantCode(t, err, driver.CodeNotRunning)
	})
}

// Without a cgroup the numbers are sums over processes. Processes that were reaped count too.
func TestStatsOfProcesses(t *testing.T) {
	b := newBench(t, noCgroups)
	task := b.start(b.sh(`/bin/sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'
		echo ready; while :; do :; done`))
	b.says(task, "ready")
	_, children := cpuOf(t, task.Process().PID)
	time.Sleep(slack)
	s, err := task.Stats()
	if err != nil || s.Cgroup || s.Processes != 1 || s.Threads != 1 || s.MemoryBytes <= 0 || s.Uptime < 0 {
		t.Errorf("stats = %+v, %v", s, err)
	}
	if s.MemoryPeak != driver.Unknown || s.MemoryLimit != driver.Unknown || s.ThreadLimit != driver.Unknown {
		t.Errorf("numbers that nothing counts: %+v", s)
	}
	own, _ := cpuOf(t, task.Process().PID)
	if children < 2*slack || s.CPU < children || s.CPU > children+own+slack {
		t.Errorf("it used %v; the kernel says %v, and %v by a child that has ended", s.CPU, own, children)
	}
	wantBusy(t, task, task.Process().PID)
}
