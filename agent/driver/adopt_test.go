package driver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
)

func TestAdopt(t *testing.T) {
	modes(t, func(t *testing.T, b *bench) {
		runs := b.start(b.sh("echo before; trap 'echo asked; exit 6' TERM; while :; do sleep 0.01; done"))
		b.says(runs, "before")
		ends := b.start(b.sh("while [ ! -e go ]; do sleep 0.01; done; exit 8"))
		must(t, b.d.Close())
		select {
		case <-runs.Done():
			t.Fatal("closing the driver ended an instance")
		default:
		}
		// The second program exits while no agent runs.
		must(t, os.WriteFile(filepath.Join(ends.Dir(), "go"), nil, 0o644))
		eventually(t, "the second program to end", func() bool { return !running(ends.Process().PID) })

		b.open()
		tasks := b.adopt()
		if len(tasks) != 2 {
			t.Fatalf("adopted %d instances, want 2", len(tasks))
		}
		got := tasks[0]
		if got.ID() != runs.ID() || got.Process() != runs.Process() || !got.Alive() || got.Dir() != runs.Dir() {
			t.Errorf("adopted %s with process %+v, was %s with %+v", got.ID(), got.Process(), runs.ID(), runs.Process())
		}
		if s, err := got.Stats(); err != nil || s.Processes < 1 || s.MemoryBytes == 0 {
			t.Errorf("stats = %+v, %v", s, err)
		}
		if e := wait(t, tasks[1]); e.Reason != driver.ReasonExited || e.Code != 8 || e.StartedAt.IsZero() {
			t.Errorf("ended meanwhile with %+v", e)
		}
		if len(b.adopt()) != 2 {
			t.Error("adopting twice loses instances")
		}
		stop(t, got, 0, 5*time.Second)
		if e, _ := got.Exit(); e.Reason != driver.ReasonStopped || e.Code != 6 {
			t.Errorf("exit = %+v", e)
		}
		if out := b.logs(got, driver.Stdout); out != "before\nasked\n" {
			t.Errorf("logs = %q", out)
		}
	})
}

// If an agent asks for a stop and dies, the shim completes the stop.
func TestStopOutlivesAgent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.start(b.sh("trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done"))
	b.says(task, "ready")
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- task.Stop(ctx, 0, 500*time.Millisecond) }()
	b.says(task, "asked")
	must(t, b.d.Close())
	cancel()
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Errorf("stop of a closed driver: %v", err)
	}
	b.open()
	tasks := b.adopt()
	if e := wait(t, tasks[0]); e.Reason != driver.ReasonKilledAfterGrace {
		t.Errorf("exit = %+v", e)
	}
}

// An agent process is killed at random moments while it starts an instance. Each time, either the next agent adopts the
// instance, or nothing of the instance is left.
func TestAgentKilledWhileStarting(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("skipped: takes a second")
	}
	exe, err := os.Executable()
	must(t, err)
	modes(t, func(t *testing.T, b *bench) {
		rng := rand.New(rand.NewPCG(7, 7))
		adopted, nothing := 0, 0
		for i := range 16 {
			must(t, b.d.Close())
			id := driver.ID(fmt.Sprintf("%s-k%d", filepath.Base(filepath.Dir(b.cfg.Dir)), i))
			b.ids[id] = true
			agent := exec.Command(exe, "helper", "agent", b.cfg.Dir, b.cfg.CgroupParent, string(id), "exec sleep 1000", "")
			out, err := agent.StdoutPipe()
			must(t, err)
			must(t, agent.Start())
			lines := bufio.NewScanner(out)
			if !lines.Scan() || lines.Text() != "starting" {
				t.Fatalf("the agent said %q", lines.Text())
			}
			time.Sleep(time.Duration(rng.IntN(30_000)) * time.Microsecond) // the random moment is the point of the test
			must(t, agent.Process.Kill())
			_ = agent.Wait()

			b.open()
			b.adopt()
			task, ok := b.d.Task(id)
			if !ok {
				nothing++
				eventually(t, "a late shim to see that it was given up", func() bool {
					return len(processesOf(string(id), map[driver.ID]bool{id: true})) == 0
				})
				b.nothingLeftOf(id)
				continue
			}
			adopted++
			if !task.Alive() {
				e, _ := task.Exit()
				t.Errorf("adopted, but not alive: %+v", e)
			}
			stop(t, task, 0, 0)
			must(t, task.Remove())
			b.nothingLeftOf(id)
		}
		t.Logf("killed in mid-start 16 times: %d adopted, %d without a trace", adopted, nothing)
	})
}

func TestGarbageStateDirs(t *testing.T) {
	b := newBench(t)
	alive := b.start(b.sh("exec sleep 1000"))
	must(t, b.d.Close())
	state := filepath.Join(b.cfg.Dir, "state")
	launch, err := os.ReadFile(filepath.Join(state, string(alive.ID()), "launch"))
	must(t, err)
	garbage := map[string][]byte{
		"empty": nil, "noise": []byte("\x00\xff noise"), "cut": launch[:len(launch)/2],
		"flipped":     append([]byte{launch[0] ^ 1}, launch[1:]...),
		"not-its-own": launch, ".new-half-made": launch, ".removed-half": nil, "with space": launch,
	}
	for name, content := range garbage {
		must(t, os.Mkdir(filepath.Join(state, name), 0o700))
		if content != nil {
			must(t, os.WriteFile(filepath.Join(state, name, "launch"), content, 0o600))
		}
	}
	must(t, os.Mkdir(filepath.Join(b.cfg.Dir, "work", "nobodys"), 0o700))
	must(t, os.WriteFile(filepath.Join(state, "a-file"), []byte("x"), 0o600))
	b.open()
	tasks := b.adopt()
	if len(tasks) != 1 || tasks[0].ID() != alive.ID() || !tasks[0].Alive() {
		t.Fatalf("adopted %v", tasks)
	}
	entries, err := os.ReadDir(state)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("state has %v", entries)
	}
	if _, err := os.Stat(filepath.Join(b.cfg.Dir, "work", "nobodys")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a working directory without an instance is left")
	}
}

// If the launch record of a running instance is damaged, the instance can't be adopted, so its processes are killed.
func TestDamagedLaunchOfRunning(t *testing.T) {
	modes(t, func(t *testing.T, b *bench) {
		task := b.start(b.sh(detach + "exec sleep 1000"))
		pids := pidsIn(t, filepath.Join(b.d.WorkDir(task.ID()), "pids"), 4)
		must(t, b.d.Close())
		path := filepath.Join(b.cfg.Dir, "state", string(task.ID()), "launch")
		for _, n := range []int{0, 5} { // in the second round, the instance has no process any more
			must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			must(t, os.WriteFile(path, make([]byte, n), 0o600))
			b.open()
			if tasks := b.adopt(); len(tasks) != 0 {
				t.Fatalf("adopted %v", tasks)
			}
			goneAll(t, append(pids, task.Process().PID))
			b.nothingLeftOf(task.ID())
			must(t, b.d.Close())
		}
		b.open()
	})
}

// A running instance with a damaged or missing state file is adopted, unless the file is its launch record. In that
// case the instance is killed, and nothing of it is left.
func TestDamagedFiles(t *testing.T) {
	b := newBench(t)
	for _, file := range []string{"launch", "shim", "main"} {
		for _, damage := range []string{"cut", "flip", "gone"} {
			task := b.start(b.sh("exec sleep 1000"))
			must(t, b.d.Close())
			path := filepath.Join(b.cfg.Dir, "state", string(task.ID()), file)
			content, err := os.ReadFile(path)
			must(t, err)
			switch damage {
			case "cut":
				err = os.WriteFile(path, content[:len(content)-3], 0o600)
			case "flip":
				content[len(content)/2] ^= 0x10
				err = os.WriteFile(path, content, 0o600)
			case "gone":
				err = os.Remove(path)
			}
			must(t, err)
			b.open()
			tasks := b.adopt()
			if len(tasks) > 0 {
				if !tasks[0].Alive() || tasks[0].Process() != task.Process() {
					t.Errorf("%s %s: adopted with process %+v, was %+v", file, damage, tasks[0].Process(), task.Process())
				}
				stop(t, tasks[0], 0, 0)
				must(t, tasks[0].Remove())
			}
			if adopted := len(tasks) == 1; adopted != (file != "launch") {
				t.Errorf("%s %s: adopted = %v", file, damage, adopted)
			}
			b.nothingLeftOf(task.ID())
		}
	}
}

func TestAdoptAfterReboot(t *testing.T) {
	b := newBench(t)
	task, _ := b.run("echo kept")
	must(t, b.d.Close())
	dir := filepath.Join(b.cfg.Dir, "state", string(task.ID()))
	must(t, os.Remove(filepath.Join(dir, "exit"))) // as if power had failed before the exit was written
	driver.OtherBoot(t, dir)
	b.open()
	tasks := b.adopt()
	if len(tasks) != 1 {
		t.Fatalf("adopted %d", len(tasks))
	}
	if e, ok := tasks[0].Exit(); !ok || e.Reason != driver.ReasonHostRebooted {
		t.Fatalf("exit = %+v, %v", e, ok)
	}
	if out := b.logs(tasks[0], driver.Stdout); !strings.Contains(out, "kept") {
		t.Errorf("logs = %q", out)
	}
}

// Another boot id alone proves no reboot, so a running program is adopted. If the shim is dead, the processes that the
// program left are killed before the exit is reported.
func TestAdoptUnderAnotherBootID(t *testing.T) {
	modes(t, func(t *testing.T, b *bench) {
		task := b.start(b.sh("exec sleep 1000"))
		must(t, b.d.Close())
		driver.OtherBoot(t, filepath.Join(b.cfg.Dir, "state", string(task.ID())))
		b.open()
		tasks := b.adopt()
		if len(tasks) != 1 || !tasks[0].Alive() || tasks[0].Process() != task.Process() {
			t.Fatalf("adopted %v", tasks)
		}
		stop(t, tasks[0], 0, 0)
		must(t, tasks[0].Remove())
		b.nothingLeftOf(task.ID())

		task = b.start(b.sh(strings.ReplaceAll(detach, "env -i", "") + "exec sleep 1000"))
		pids := pidsIn(t, filepath.Join(b.d.WorkDir(task.ID()), "pids"), 4)
		must(t, b.d.Close())
		main := task.Process().PID
		shim := parent(t, main)
		must(t, syscall.Kill(shim, syscall.SIGKILL))
		_, _ = syscall.Wait4(shim, nil, 0, nil) // the shim is a child of the test, so the test must reap it
		eventually(t, "the program to die with its shim", func() bool { return !running(main) })
		driver.OtherBoot(t, filepath.Join(b.cfg.Dir, "state", string(task.ID())))
		b.open()
		tasks = b.adopt()
		if len(tasks) != 1 {
			t.Fatalf("adopted %v", tasks)
		}
		if e, ok := tasks[0].Exit(); !ok || e.Reason != driver.ReasonShimLost {
			t.Errorf("exit = %+v, %v", e, ok)
		}
		goneAll(t, pids)
	})
}
