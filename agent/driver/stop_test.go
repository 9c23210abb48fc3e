package driver_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
)

func stop(t *testing.T, task *driver.Task, sig syscall.Signal, grace time.Duration) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), grace+patience)
	defer cancel()
	begin := time.Now()
	if err := task.Stop(ctx, sig, grace); err != nil {
		t.Fatalf("stop: %v", err)
	}
	return time.Since(begin)
}

func TestStop(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, script string
		sig          syscall.Signal
		grace        time.Duration
		reason       driver.Reason
		code         int
	}{
		{"by default action", "echo ready; exec sleep 1000", 0, 5 * time.Second, driver.ReasonStopped, 143},
		{"handled", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done", 0, 5 * time.Second,
			driver.ReasonStopped, 3},
		{"other signal", "trap 'exit 4' INT; trap '' TERM; echo ready; while :; do sleep 0.01; done", syscall.SIGINT,
			5 * time.Second, driver.ReasonStopped, 4},
		{"ignored", "trap '' TERM; echo ready; while :; do sleep 0.01; done", 0, 200 * time.Millisecond,
			driver.ReasonKilledAfterGrace, 137},
		{"no grace", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done", 0, 0, driver.ReasonKilled, 137},
		{"stopped by SIGSTOP", "trap 'exit 5' TERM; echo ready; kill -STOP $$; while :; do sleep 0.01; done", 0,
			5 * time.Second, driver.ReasonStopped, 5},
	}
	modes(t, func(t *testing.T, b *bench) {
		for _, tt := range tests {
			task := b.start(b.sh(tt.script))
			b.says(task, "ready")
			took := stop(t, task, tt.sig, tt.grace)
			e, ok := task.Exit()
			if !ok || e.Reason != tt.reason || e.Code != tt.code {
				t.Errorf("%s: exit = %+v, %v; want %s, %d", tt.name, e, ok, tt.reason, tt.code)
			}
			switch tt.reason {
			case driver.ReasonKilledAfterGrace:
				if took < tt.grace || took > tt.grace+2*time.Second {
					t.Errorf("%s: took %v with a grace of %v", tt.name, took, tt.grace)
				}
			default:
				if took > 2*time.Second {
					t.Errorf("%s: took %v", tt.name, took)
				}
			}
			goneAll(t, []int{task.Process().PID})
		}
	})
}

// escape is the beginning of a script. It starts children that leave their process group, session, environment and
// parent, and that ignore the stop signal. Each child appends its process id to the file pids.
const escape = `
: >> pids
for i in 1 2 3; do
	( setsid env -i /bin/sh -c 'trap "" TERM HUP INT; echo $$ >> pids; while :; do sleep 0.05; done' & ) &
done
echo ready
`

func TestOrphansAreKilled(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, b *bench) {
		task := b.start(b.sh(escape + "exec sleep 1000"))
		pids := pidsIn(t, filepath.Join(b.d.WorkDir(task.ID()), "pids"), 3)
		took := stop(t, task, 0, 300*time.Millisecond)
		goneAll(t, append(pids, task.Process().PID))
		if e, _ := task.Exit(); e.Reason != driver.ReasonKilledAfterGrace || took < 300*time.Millisecond {
			t.Errorf("exit = %+v after %v", e, took)
		}
	})
}

// If a program exits by itself, the processes that it left are killed before the exit is reported.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, b *bench) {
		task := b.start(b.sh(escape+"while [ $(wc -l < pids) -lt 3 ]; do sleep 0.01; done; exit 9",
			func(s *driver.Spec) { s.Stop.Grace = 200 * time.Millisecond }))
		pids := pidsIn(t, filepath.Join(b.d.WorkDir(task.ID()), "pids"), 3)
		e := wait(t, task)
		goneAll(t, pids)
		if e.Reason != driver.ReasonExited || e.Code != 9 || !strings.Contains(e.Message, "left behind") {
			t.Errorf("exit = %+v", e)
		}
	})
}

// Processes that outlive the main process first get the stop signal, so that they can exit by themselves.
func TestLeftBehindIsAsked(t *testing.T) {
	modes(t, func(t *testing.T, b *bench) {
		begin := time.Now()
		task, e := b.run(`( setsid /bin/sh -c 'trap "echo cleaned; exit" TERM; echo up; touch up; while :; do sleep 0.01; done' & ) &
			until [ -e up ]; do sleep 0.01; done; exit 0`)
		if out := b.logs(task, driver.Stdout); e.Reason != driver.ReasonExited || e.Message != "" || out != "up\ncleaned\n" {
			t.Errorf("exit = %+v, stdout = %q", e, out)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("took %v, with a child that ends when asked", took)
		}
	})
}

// Processes that fork all the time are killed too.
func TestForkStormIsKilled(t *testing.T) {
	modes(t, func(t *testing.T, b *bench) {
		task :=
			b.start(b.sh(`storm() { while :; do ( setsid sh -c 'sleep 0.02' & ) ; done; }; storm & storm & echo ready; wait`))
		b.says(task, "ready")
		stop(t, task, 0, 0)
		if left := processesOf(string(task.ID()), map[driver.ID]bool{task.ID(): true}); len(left) > 0 {
			t.Errorf("%d processes are left", len(left))
		}
	})
}

func TestStopTwice(t *testing.T) {
	b := newBench(t)
	task := b.start(b.sh("trap '' TERM; echo ready; while :; do sleep 0.01; done"))
	b.says(task, "ready")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := task.Stop(ctx, 0, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error = %v", err)
	}
	if !task.Alive() {
		t.Fatal("the grace of an hour was not kept")
	}
	if took := stop(t, task, 0, 100*time.Millisecond); took > 3*time.Second { // the shorter grace applies
		t.Errorf("took %v", took)
	}
	if took := stop(t, task, 0, time.Hour); took > time.Second {
		t.Errorf("stopping what has ended took %v", took)
	}
	wantCode(t, task.Signal(t.Context(), syscall.SIGTERM), driver.CodeNotRunning)
	must(t, task.Remove())
	must(t, task.Remove())
}

func TestSignal(t *testing.T) {
	b := newBench(t)
	task := b.start(b.sh("trap 'echo usr1' USR1; echo ready; while :; do sleep 0.01; done"))
	b.says(task, "ready")
	must(t, task.Signal(t.Context(), syscall.SIGUSR1))
	b.says(task, "usr1")
}

// If a shim hangs, the driver stops the instance without the shim.
func TestHungShim(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, b *bench) {
		task := b.start(b.sh(escape + "trap 'echo stopped; exit 0' TERM; while :; do sleep 0.05; done"))
		pids := pidsIn(t, filepath.Join(b.d.WorkDir(task.ID()), "pids"), 3)
		must(t, syscall.Kill(parent(t, task.Process().PID), syscall.SIGSTOP))
		stop(t, task, 0, 100*time.Millisecond)
		if e, _ := task.Exit(); e.Reason != driver.ReasonShimLost {
			t.Errorf("exit = %+v", e)
		}
		goneAll(t, append(marked(pids, b), task.Process().PID))
	})
}

// marked returns the pids that must be gone once the shim is lost. Without cgroups, nothing links these processes to
// the shim, so marked kills them and returns nil.
func marked(pids []int, b *bench) []int {
	if b.cfg.CgroupParent == "" {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // documented limit: DESIGN.md, "A lost shim"
		}
		return nil
	}
	return pids
}

// detach is the beginning of a script. It starts four children that leave their parent, ignore the stop signal and
// append their process ids to the file pids. Three also leave process group and session; the fourth has no environment.
const detach = `
: >> pids
for i in 1 2 3; do
	( setsid /bin/sh -c 'trap "" TERM HUP INT; echo $$ >> pids; while :; do sleep 0.05; done' & ) &
done
( env -i /bin/sh -c 'trap "" TERM HUP INT; echo $$ >> pids; while :; do sleep 0.05; done' & ) &
`

// If the shim is killed, every process of the instance is killed, and the exit is reported as shim_lost.
func TestShimLost(t *testing.T) {
	modes(t, func(t *testing.T, b *bench) {
		task := b.start(b.sh(detach + "exec sleep 1000"))
		pids := pidsIn(t, filepath.Join(b.d.WorkDir(task.ID()), "pids"), 4)
		must(t, syscall.Kill(parent(t, task.Process().PID), syscall.SIGKILL))
		e := wait(t, task)
		if e.Reason != driver.ReasonShimLost || e.Code != -1 || !e.Failed() {
			t.Errorf("exit = %+v", e)
		}
		goneAll(t, append(pids, task.Process().PID))
		// The next agent knows the exit too, and can start the instance again.
		tasks := b.restart()
		if len(tasks) != 1 {
			t.Fatalf("adopted %d", len(tasks))
		}
		if e, ok := tasks[0].Exit(); !ok || e.Reason != driver.ReasonShimLost {
			t.Errorf("adopted with %+v, %v", e, ok)
		}
		spec := tasks[0].Spec()
		spec.Args = []string{"-c", "exit 0"}
		if e := wait(t, b.start(spec)); e.Reason != driver.ReasonExited {
			t.Errorf("second run: %+v", e)
		}
	})
}

// If no agent runs when the shim dies, the kernel kills the program. The next agent kills the program's children.
func TestShimLostWithoutAgent(t *testing.T) {
	modes(t, func(t *testing.T, b *bench) {
		task := b.start(b.sh(detach + "exec sleep 1000"))
		pids := pidsIn(t, filepath.Join(b.d.WorkDir(task.ID()), "pids"), 4)
		main := task.Process().PID
		must(t, b.d.Close())
		must(t, syscall.Kill(parent(t, main), syscall.SIGKILL))
		eventually(t, "the program to die with its shim", func() bool { return !running(main) })
		b.open()
		tasks := b.adopt()
		if len(tasks) != 1 {
			t.Fatalf("adopted %d", len(tasks))
		}
		if e := wait(t, tasks[0]); e.Reason != driver.ReasonShimLost {
			t.Errorf("exit = %+v", e)
		}
		goneAll(t, pids)
	})
}

// Shim and program must not inherit a descriptor that the agent left open, such as the writing end of a pipe. Otherwise
// the reader of that pipe would wait until the instance ends.
func TestInheritedDescriptor(t *testing.T) {
	b := newBench(t)
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	fd, err := syscall.Dup(int(w.Fd())) // not closed on exec
	must(t, err)
	task := b.start(b.sh("exec sleep 1000"))
	must(t, syscall.Close(fd))
	must(t, w.Close())
	must(t, r.SetReadDeadline(time.Now().Add(patience)))
	if _, err := r.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the instance holds a descriptor that was none of its business")
	}
	if !task.Alive() {
		t.Fatal("it ended")
	}
}
