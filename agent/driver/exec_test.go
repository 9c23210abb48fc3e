package driver_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
)

func TestExec(t *testing.T) {
	modes(t, func(t *testing.T, b *bench) {
		signal.Ignore(syscall.SIGHUP) // as nohup does; the command must not inherit the ignored signal
		defer signal.Reset(syscall.SIGHUP)
		task := b.start(b.sh("exec sleep 1000", func(s *driver.Spec) { s.Env = map[string]string{"A": "spec", "B": "spec"} }))
		var out, errs strings.Builder
		code, err := task.Exec(t.Context(), driver.Command{
			Argv: []string{"sh", "-c",
				"pwd; id -u; echo $A $B; grep -E 'NoNewPrivs|SigIgn' /proc/self/status; echo oops >&2; cat " +
					"/proc/self/cgroup; exit 5"},
			Env: map[string]string{"B": "command"}, Stdout: &out, Stderr: &errs,
		})
		want := fmt.Sprintf("%s\n%d\nspec command\nSigIgn:\t0000000000000000\nNoNewPrivs:\t1\n", task.Dir(), task.User())
		if err != nil || code != 5 || !strings.HasPrefix(out.String(), want) || errs.String() != "oops\n" {
			t.Errorf("code %d, %v, stdout %q, stderr %q", code, err, out.String(), errs.String())
		}
		if b.cfg.CgroupParent != "" && !strings.Contains(out.String(), b.cfg.CgroupParent) {
			t.Errorf("it ran outside of the instance's cgroup: %s", out.String())
		}
		if code, err := task.Exec(t.Context(), driver.Command{Argv: []string{"sh", "-c", "kill -TERM $$"}}); err != nil ||
			code != 143 {
			t.Errorf("killed: %d, %v", code, err)
		}
		_, err = task.Exec(t.Context(), driver.Command{Argv: []string{"/no/such/program"}})
		wantCode(t, err, driver.CodeStartFailed)
	})
}

// A command that takes too long is killed with its children. Exec does not wait for children that keep an output open.
func TestExecTimeout(t *testing.T) {
	b := newBench(t)
	task := b.start(b.sh("exec sleep 1000"))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := task.Exec(ctx,
		driver.Command{Argv: []string{"sh", "-c", "trap '' TERM; sleep 1000 & sleep 1000; sleep 1000"}})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 3*time.Second {
		t.Errorf("error %v after %v", err, time.Since(begin))
	}
	eventually(t, "only the program to be left", func() bool {
		n := len(processesOf("no directory", map[driver.ID]bool{task.ID(): true}))
		return n == 1
	})
	// A command that succeeds leaves no process running either.
	code, err := task.Exec(t.Context(), driver.Command{Argv: []string{"sh", "-c", "sleep 1000 & exit 0"}})
	if err != nil || code != 0 {
		t.Errorf("%d, %v", code, err)
	}
	if n := len(processesOf("no directory", map[driver.ID]bool{task.ID(): true})); n != 1 {
		t.Errorf("%d processes, want the program alone", n)
	}
	stop(t, task, 0, 0)
	_, err = task.Exec(t.Context(), driver.Command{Argv: []string{"true"}})
	wantCode(t, err, driver.CodeNotRunning)
}

// Exec returns even if its command can't be killed, as in uninterruptible sleep. The program can still be stopped, but
// no other command starts in the instance until that command has exited.
func TestExecThatCantBeKilled(t *testing.T) {
	frozen := fmt.Sprintf("/sys/fs/cgroup/freezer/outspan-test-%d", os.Getpid())
	if os.Geteuid() != 0 || os.Mkdir(frozen, 0o755) != nil {
		t.Skip("it needs root and the freezer of cgroup v1, in which a process can't be killed")
	}
	put := func(file, text string) { must(t, os.WriteFile(filepath.Join(frozen, file), []byte(text), 0o644)) }
	b := newBench(t, noCgroups)
	t.Cleanup(func() {
		put("freezer.state", "THAWED")
		eventually(t, "the cgroup to be empty", func() bool { return os.Remove(frozen) == nil })
	})
	pidFile := filepath.Join(filepath.Dir(b.cfg.Dir), "pid")
	must(t, os.WriteFile(pidFile, nil, 0o666))
	must(t, os.Chmod(pidFile, 0o666))
	task := b.start(b.sh("trap 'echo told; exit' TERM; while :; do sleep 0.01; done"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() {
		_, err := task.Exec(ctx, driver.Command{Argv: []string{"sh", "-c", "echo $$ > " + pidFile + "; exec sleep 1000"}})
		result <- err
	}()
	var pid []byte
	eventually(t, "the command to run", func() bool { pid, _ = os.ReadFile(pidFile); return len(pid) > 1 })
	put("cgroup.procs", strings.TrimSpace(string(pid)))
	put("freezer.state", "FROZEN")
	cancel()
	select {
	case err := <-result:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	case <-time.After(patience):
		t.Fatal("it waits for a command that can't be killed")
	}
	_, err := task.Exec(t.Context(), driver.Command{Argv: []string{"true"}})
	wantCode(t, err, driver.CodeStillRunning)
	stopping, give := context.WithTimeout(t.Context(), patience)
	defer give()
	go func() { _ = task.Stop(stopping, syscall.SIGTERM, time.Minute) }()
	b.says(task, "told")
	put("freezer.state", "THAWED")
	wait(t, task)
}

// If Command.Alone is true, Exec first kills an earlier command with the same Env, which a killed agent may have left.
// Other commands continue.
func TestExecAlone(t *testing.T) {
	modes(t, func(t *testing.T, b *bench) {
		task := b.start(b.sh("exec sleep 1000"))
		began, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan int, 2)
		run := func(env map[string]string) {
			code, _ := task.Exec(began, driver.Command{Argv: []string{"sh", "-c", "sleep 1000; true"}, Env: env})
			ended <- code
		}
		hook := map[string]string{"HOOK": "one"}
		go run(hook)
		go run(map[string]string{"HOOK": "two"})
		count := func() int { return len(processesOf("no directory", map[driver.ID]bool{task.ID(): true})) }
		eventually(t, "both to run", func() bool { return count() == 5 })
		code, err := task.Exec(t.Context(), driver.Command{Argv: []string{"true"}, Env: hook, Alone: true})
		if err != nil || code != 0 {
			t.Errorf("the second run: %d, %v", code, err)
		}
		if code := <-ended; code != 137 {
			t.Errorf("the first run ended with %d, want 137", code)
		}
		if n := count(); n != 3 {
			t.Errorf("%d processes, want the program and the other command's two", n)
		}
		cancel()
		<-ended
	})
}

// Notes are whole lines in the program's log, and don't keep that log open after the program has exited.
func TestNote(t *testing.T) {
	b := newBench(t)
	task := b.start(b.sh("trap 'exit 0' TERM; echo first >&2; while :; do sleep 0.01; done"))
	eventually(t, "the program's line", func() bool { return b.logs(task, driver.Stderr) == "first\n" })
	must(t, task.Note(t.Context(), "hook: one\nhook: two\n"))
	long := strings.Repeat("x", driver.NoteLimit-1) + "\n"
	must(t, task.Note(t.Context(), long))
	eventually(t, "the notes", func() bool { return b.logs(task, driver.Stderr) == "first\nhook: one\nhook: two\n"+long })
	wantCode(t, task.Note(t.Context(), long+"x"), driver.CodeInvalidSpec)
	begin := time.Now()
	stop(t, task, syscall.SIGTERM, 5*time.Second)
	if took := time.Since(begin); took >= 2*time.Second { // the shim would wait this long for a log that is held open
		t.Errorf("the end took %v: the log was held open", took)
	}
	wantCode(t, task.Note(t.Context(), "late\n"), driver.CodeNotRunning)
}
