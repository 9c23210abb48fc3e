package procs_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

// limit bounds each wait; it is much longer than a wait should take.
const limit = 20 * time.Second

// shell starts a shell script, and waits until it has printed "ready".
func shell(t *testing.T, script string) *procs.Process {
	t.Helper()
	p := &procs.Process{Name: "sh", Command: []string{"/bin/sh", "-c", script, "sh", t.TempDir()},
		Env: []string{"WORD=hello"}, Log: filepath.Join(t.TempDir(), "log")}
	t.Cleanup(p.Kill)
	begin(t, p)
	return p
}

func begin(t *testing.T, p *procs.Process) {
	t.Helper()
	if err := os.RemoveAll(p.Log); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return strings.Contains(p.LastLines(5), "ready") })
}

func await(t *testing.T, done func() bool) {
	t.Helper()
	err := procs.Until(t.Context(), limit, time.Millisecond, func(context.Context) error {
		if !done() {
			return errors.New("it is not so yet")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestProcess(t *testing.T) {
	p := shell(t, `trap 'echo bye; exit 7' TERM; echo $WORD; echo ready; while :; do sleep 0.01; done`)
	if err := p.Start(); err == nil || !p.Running() {
		t.Errorf("a process that runs was started again: %v", err)
	}
	if got := p.LastLines(2); got != "hello\nready" {
		t.Errorf("the log ends with %q", got)
	}
	if used, err := p.Usage(); err != nil || used.Memory == 0 || used.Peak < used.Memory {
		t.Errorf("it uses %+v: %v", used, err)
	}
	if err := p.Wait(time.Millisecond); err == nil {
		t.Error("the wait for a process that goes on has no bound")
	}
	if err := p.Stop(limit); err != nil || p.Running() || p.ExitCode() != 7 || p.LastLines(1) != "bye" {
		t.Errorf("it ended with code %d and %q: %v", p.ExitCode(), p.LastLines(1), err)
	}
	if _, err := p.Usage(); err == nil || !errors.Is(p.Signal(syscall.SIGCONT), os.ErrProcessDone) {
		t.Errorf("a process that has ended is taken for one that runs: %v", err)
	}
	begin(t, p)
	p.Kill()
	if p.Running() || p.ExitCode() != -1 {
		t.Errorf("killed, it runs: %v, exit code %d", p.Running(), p.ExitCode())
	}
}

func TestStopKillsWhatDoesNotEnd(t *testing.T) {
	p := shell(t, `trap '' TERM; echo ready; while :; do sleep 0.01; done`)
	if err := p.Stop(50 * time.Millisecond); err == nil || p.Running() || p.ExitCode() != -1 {
		t.Errorf("it runs: %v, exit code %d: %v", p.Running(), p.ExitCode(), err)
	}
}

// Find returns the processes whose command line matches, and all their descendants, whatever command lines the
// descendants have.
func TestFind(t *testing.T) {
	p := shell(t, `sleep 1000 & echo $! ready; wait`)
	word, _, _ := strings.Cut(p.LastLines(1), " ")
	child, err := strconv.Atoi(word)
	if err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { // until the child of the shell has executed sleep
		row, _ := procs.RowOf(child)
		return strings.HasPrefix(row.Args(), "sleep\x00")
	})
	found := procs.Find(func(args string) bool { return strings.Contains(args, p.Command[4]+"\x00") })
	slices.Sort(found)
	want := []int{p.PID(), child}
	slices.Sort(want)
	if !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
	if _, ok := procs.Descendants()[child]; !ok {
		t.Errorf("%d is not among the descendants", child)
	}
	procs.Kill(found...)
	await(t, func() bool { return !p.Running() })
}

// Reap reaps a child that the family has not started. It does not reap a child that the family has started, so the
// child's exit status is not lost.
func TestReap(t *testing.T) {
	family, ours, other := &procs.Family{}, exec.Command("true"), exec.Command("true")
	if err := errors.Join(family.Start(ours), other.Start()); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []*exec.Cmd{ours, other} {
		await(t, func() bool {
			row, _ := procs.RowOf(cmd.Process.Pid)
			return row.Zombie
		})
	}
	family.Reap()
	if _, ok := procs.RowOf(other.Process.Pid); ok {
		t.Error("the other child is still there")
	}
	if err := family.Wait(ours); err != nil {
		t.Errorf("the exit status of the own child is lost: %v", err)
	}
	_ = other.Wait() // fails, because Reap has taken the exit status
}

// Until calls the function again after an error. The error that Until returns wraps the function's last error.
func TestUntil(t *testing.T) {
	missing, looks := errors.New("nothing there"), 0
	err := procs.Until(t.Context(), 30*time.Millisecond, time.Millisecond, func(context.Context) error {
		looks++
		return missing
	})
	if !errors.Is(err, missing) || looks < 2 {
		t.Errorf("after %d looks: %v", looks, err)
	}
}
