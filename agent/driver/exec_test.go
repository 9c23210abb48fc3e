package driver_test

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
)

func TestExec(t *testing.T) {
	modes(t, func(t *testing.T, b *bench) {
		signal.Ignore(syscall.SIGHUP) // as nohup does: it must not reach the command
		defer signal.Reset(syscall.SIGHUP)
		task := b.start(b.sh("exec sleep 1000", func(s *driver.Spec) { s.Env = map[string]string{"A": "spec", "B": "spec"} }))
		var out, errs strings.Builder
		code, err := task.Exec(t.Context(), driver.Command{
			Argv: []string{"sh", "-c", "pwd; id -u; echo $A $B; grep -E 'NoNewPrivs|SigIgn' /proc/self/status; echo oops >&2; cat /proc/self/cgroup; exit 5"},
			Env:  map[string]string{"B": "command"}, Stdout: &out, Stderr: &errs,
		})
		want := fmt.Sprintf("%s\n%d\nspec command\nSigIgn:\t0000000000000000\nNoNewPrivs:\t1\n", task.Dir(), task.User())
		if err != nil || code != 5 || !strings.HasPrefix(out.String(), want) || errs.String() != "oops\n" {
			t.Errorf("code %d, %v, stdout %q, stderr %q", code, err, out.String(), errs.String())
		}
		if b.cfg.CgroupParent != "" && !strings.Contains(out.String(), b.cfg.CgroupParent) {
			t.Errorf("it ran outside of the instance's cgroup: %s", out.String())
		}
		if code, err := task.Exec(t.Context(), driver.Command{Argv: []string{"sh", "-c", "kill -TERM $$"}}); err != nil || code != 143 {
			t.Errorf("killed: %d, %v", code, err)
		}
		_, err = task.Exec(t.Context(), driver.Command{Argv: []string{"/no/such/program"}})
		wantCode(t, err, driver.CodeStartFailed)
	})
}

// What takes too long is killed with its children, and holds nobody up by its output.
func TestExecTimeout(t *testing.T) {
	b := newBench(t)
	task := b.start(b.sh("exec sleep 1000"))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := task.Exec(ctx, driver.Command{Argv: []string{"sh", "-c", "trap '' TERM; sleep 1000 & sleep 1000; sleep 1000"}})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 3*time.Second {
		t.Errorf("error %v after %v", err, time.Since(begin))
	}
	eventually(t, "only the program to be left", func() bool {
		n := len(processesOf("no directory", map[driver.ID]bool{task.ID(): true}))
		return n == 1
	})
	// One that succeeds may leave nothing either.
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
