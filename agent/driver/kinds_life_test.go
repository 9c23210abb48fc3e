package driver_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
)

func TestKindsExit(t *testing.T) {
	kinds(t, func(t *testing.T, k kind) {
		for _, tt := range []struct {
			script string
			reason driver.Reason
			code   int
			signal syscall.Signal
		}{
			{"exit 0", driver.ReasonExited, 0, 0},
			{"exit 7", driver.ReasonExited, 7, 0},
			{"kill -SEGV $$", driver.ReasonSignaled, 139, syscall.SIGSEGV},
			{"kill -KILL $$", driver.ReasonSignaled, 137, syscall.SIGKILL},
		} {
			task := k.start(k.script(tt.script))
			e := wait(t, task)
			if e.Reason != tt.reason || e.Code != tt.code || e.Signal != tt.signal || e.OOMKilled {
				t.Errorf("%s: exit = %+v; %s", tt.script, e, k.logs(task, driver.Stderr))
			}
		}
	})
}

func TestKindsAdopt(t *testing.T) {
	kinds(t, func(t *testing.T, k kind) {
		runs := k.start(k.script("echo before; trap 'echo asked; exit 6' TERM; while :; do sleep 0.01; done"))
		k.says(runs, "before")
		ends := k.start(k.script("while [ ! -e go ]; do sleep 0.01; done; " +
			"dd if=/dev/zero bs=1000 count=10000 2>/dev/null; exit 8"))
		must(t, k.d.Close())
		must(t, os.WriteFile(k.file(ends, "go"), nil, 0o644))
		eventually(t, "the second program to end", func() bool { return !running(ends.Process().PID) })
		k.open()
		tasks := k.adopt()
		if len(tasks) != 2 {
			t.Fatalf("adopted %d instances, want 2", len(tasks))
		}
		if got := tasks[0]; got.Process() != runs.Process() || !got.Alive() {
			t.Errorf("adopted %+v, was %+v", got.Process(), runs.Process())
		}
		if s, err := tasks[0].Stats(); err != nil || s.Processes < 1 || s.MemoryBytes == 0 {
			t.Errorf("stats = %+v, %v", s, err)
		}
		if e := wait(t, tasks[1]); e.Reason != driver.ReasonExited || e.Code != 8 || e.StartedAt.IsZero() {
			t.Errorf("ended meanwhile with %+v", e)
		}
		if n := len(k.logs(tasks[1], driver.Stdout)); n != 10_000_000 {
			t.Errorf("%d bytes of logs, want 10 MB that no agent read", n)
		}
		stop(t, tasks[0], 0, 5*time.Second)
		if e, _ := tasks[0].Exit(); e.Reason != driver.ReasonStopped || e.Code != 6 {
			t.Errorf("exit = %+v", e)
		}
		if out := k.logs(tasks[0], driver.Stdout); out != "before\nasked\n" {
			t.Errorf("logs = %q", out)
		}
	})
}

func TestKindsStop(t *testing.T) {
	kinds(t, func(t *testing.T, k kind) {
		for _, tt := range []struct {
			name, script string
			sig          syscall.Signal
			grace        time.Duration
			reason       driver.Reason
			code         int
		}{
			{"by default action", "echo ready; exec sleep 1000", 0, 5 * time.Second, driver.ReasonStopped, 143},
			{"handled", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done", 0, 5 * time.Second,
				driver.ReasonStopped, 3},
			{"stop signal", "trap 'exit 4' QUIT; trap '' TERM; echo ready; while :; do sleep 0.01; done", syscall.SIGQUIT,
				5 * time.Second, driver.ReasonStopped, 4},
			{"ignored", "trap '' TERM; echo ready; while :; do sleep 0.01; done", 0, 200 * time.Millisecond,
				driver.ReasonKilledAfterGrace, 137},
			{"no grace", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done", 0, 0, driver.ReasonKilled, 137},
			{"stopped by SIGSTOP", "trap 'exit 5' TERM; echo ready; kill -STOP $$; while :; do sleep 0.01; done", 0,
				5 * time.Second, driver.ReasonStopped, 5},
		} {
			task := k.start(k.script(tt.script, func(s *driver.Spec) { s.Stop.Signal = tt.sig }))
			k.says(task, "ready")
			took := stop(t, task, 0, tt.grace)
			e, ok := task.Exit()
			if !ok || e.Reason != tt.reason || e.Code != tt.code {
				t.Errorf("%s: exit = %+v, %v; want %s, %d", tt.name, e, ok, tt.reason, tt.code)
			}
			if tt.reason == driver.ReasonKilledAfterGrace && took < tt.grace {
				t.Errorf("%s: took %v with a grace of %v", tt.name, took, tt.grace)
			}
		}
	})
}

// Orphans are reaped, and processes that outlive the program are asked to end and then killed.
func TestKindsOrphans(t *testing.T) {
	kinds(t, func(t *testing.T, k kind) {
		const leave = `for i in 1 2 3; do ( setsid env -i PATH=$PATH /bin/sh -c 'true' & ) & done; wait
			( setsid /bin/sh -c 'trap "echo cleaned; exit" TERM; touch up; while :; do sleep 0.01; done' & ) &
			( setsid env -i PATH=$PATH /bin/sh -c 'trap "" TERM; touch deaf; while :; do sleep 0.01; done' & ) &
			until [ -e up ] && [ -e deaf ]; do sleep 0.01; done; exit 9`
		task := k.start(k.script(leave, func(s *driver.Spec) { s.Stop.Grace = 300 * time.Millisecond }))
		e := wait(t, task)
		if e.Reason != driver.ReasonExited || e.Code != 9 || !strings.Contains(e.Message, "left behind") {
			t.Errorf("exit = %+v", e)
		}
		if out := k.logs(task, driver.Stdout); out != "cleaned\n" {
			t.Errorf("stdout = %q", out)
		}
	})
}

// No zombie stays while the program runs.
func TestKindsReap(t *testing.T) {
	kinds(t, func(t *testing.T, k kind) {
		task := k.start(k.script("for i in 1 2 3 4; do ( setsid sh -c 'echo $$' & ) & done; wait; " +
			"sleep 0.1; echo ready; exec sleep 1000"))
		k.says(task, "ready")
		eventually(t, "the orphans to be reaped", func() bool { return zombiesBelow(task.Process().PID) == 0 })
	})
}

// zombiesBelow counts the zombies among the children of a process and of its parent.
func zombiesBelow(pid int) int {
	n := 0
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+2:]))
		if f[0] == "Z" && f[1] == strconv.Itoa(pid) {
			n++
		}
	}
	return n
}

func TestKindsShimKilled(t *testing.T) {
	kinds(t, func(t *testing.T, k kind) {
		for _, agent := range []bool{true, false} {
			task := k.start(k.script("trap '' TERM HUP; sleep 1000 & echo ready; while :; do sleep 0.05; done"))
			k.says(task, "ready")
			main := task.Process().PID
			if !agent {
				must(t, k.d.Close())
			}
			must(t, syscall.Kill(parent(t, main), syscall.SIGKILL))
			eventually(t, "the program to die with its shim", func() bool { return !running(main) })
			if !agent {
				k.open()
				task = k.adopt()[0]
			}
			if e := wait(t, task); e.Reason != driver.ReasonShimLost || e.Code != -1 {
				t.Errorf("exit = %+v", e)
			}
		}
	})
}

func TestKindsStartFailed(t *testing.T) {
	kinds(t, func(t *testing.T, k kind) {
		for _, tt := range []struct {
			name, says string
			change     func(*driver.Spec)
		}{
			{"no such program", "/no/such/program", func(s *driver.Spec) { s.Command = "/no/such/program" }},
			{"not in PATH", "not found in PATH", func(s *driver.Spec) { s.Command = "no-such-program" }},
			{"no such directory", "working directory", func(s *driver.Spec) { s.Dir = "/no/such/dir" }},
			{"lease over", "lease", func(s *driver.Spec) { s.LeaseUntil = 1 }},
		} {
			spec := k.script("echo ran", tt.change)
			_, err := k.d.Start(t.Context(), spec)
			wantCode(t, err, driver.CodeStartFailed)
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: %v; want it to say %q", tt.name, err, tt.says)
			}
			k.nothingLeftOf(spec.ID)
		}
	})
}
