package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

// Command is what Task.Exec runs beside an instance's program: a check, a hook, or a person's command.
type Command struct {
	Argv   []string          // the program, looked up like Spec.Command, and its arguments
	Env    map[string]string // added to the instance's environment
	Stdout io.Writer         // if nil, the output is discarded
	Stderr io.Writer         // if nil, the output is discarded
	// If Alone is true, processes of an earlier command with the same Env are killed first. An earlier agent that was
	// killed may have left such processes.
	Alone bool
}

// Exec runs c as the instance's user, with the instance's directory, mounts, environment, cgroup and rlimits. It blocks
// until c has ended, and returns c's exit code, or 128 plus the number of the signal that killed c. When ctx ends, Exec
// kills c and its process group, and returns the error of ctx within about two seconds.
//
// It returns CodeNotRunning if the instance's program has ended, CodeInvalidSpec if c has no Argv, CodeStillRunning if
// earlier commands were killed but have not ended yet, CodeStateFailed if c.Alone is true and an earlier command does
// not end in time or before ctx ends, and CodeStartFailed if c can't be executed.
func (t *Task) Exec(ctx context.Context, c Command) (int, error) {
	if !t.Alive() {
		return 0, model.Refuse(CodeNotRunning, "instance %s does not run", t.ID())
	}
	if len(c.Argv) == 0 {
		return 0, model.Refuse(CodeInvalidSpec, "command in instance %s is empty", t.ID())
	}
	if n := t.commands.stuck(); n > 0 {
		return 0,
			model.Refuse(CodeStillRunning,
				"%d commands of instance %s were killed and have not ended: nothing more is run beside it", n, t.ID()).
				WithHint("look for processes in state D: a disk or a mount may not answer")
	}
	if c.Alone {
		if err := t.killEarlier(ctx, c.Env); err != nil {
			return 0, model.Refuse(CodeStateFailed, "end the earlier run of %s in instance %s: %v", c.Argv[0], t.ID(), err)
		}
	}
	p := t.launch.Spec.launcher().beside(t, c.Argv)
	env := t.launch.fullEnv()
	for k, v := range c.Env {
		env[k] = v
	}
	p.Env = environ(env)
	t.commands.begin()
	code, err := p.runOnce(ctx, c.Stdout, c.Stderr, t.commands.end)
	t.commands.leave()
	if err != nil && ctx.Err() == nil {
		return 0, model.Refuse(CodeStartFailed, "run %s in instance %s: %v", c.Argv[0], t.ID(), err)
	}
	return code, err
}

// commands counts the commands that run beside an instance, including those that were killed and have not ended yet.
// Safe for concurrent use.
type commands struct {
	mu              sync.Mutex
	alive, followed int // alive counts commands that have not ended, followed counts calls of Exec that wait
}

func (c *commands) add(alive, followed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alive, c.followed = c.alive+alive, c.followed+followed
}

func (c *commands) begin() { c.add(1, 1) }
func (c *commands) end()   { c.add(-1, 0) }
func (c *commands) leave() { c.add(0, -1) }

// stuck returns the number of commands that have not ended and for which no Exec waits any more.
func (c *commands) stuck() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.alive-c.followed, 0)
}

// killEarlier kills the processes of the instance that have all of env in their environment, with their descendants. It
// returns nil when they have ended, or an error after leftoverTimeout or when ctx ends. It sends SIGSTOP to all of them
// before it kills the first, because a script whose current step is killed would start the next step.
func (t *Task) killEarlier(ctx context.Context, env map[string]string) error {
	wanted := append(environ(env), t.launch.marker())
	for deadline := time.Now().Add(leftoverTimeout); ; {
		list, err := processes()
		if err != nil {
			return err
		}
		left := 0
		var victims []Identity
		for _, p := range list {
			if p.pid == t.Process().PID || p.dead() || !hasAllEnv(p.pid, wanted) {
				continue
			}
			left++
			for _, d := range append(descendants(list, p.pid), p) {
				victims = append(victims, d.identity(t.launch.Boot))
			}
		}
		for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			for _, v := range victims {
				_ = v.signal(sig) // an error means that the process has ended
			}
		}
		switch {
		case left == 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%d processes are left (%w)", left, os.ErrDeadlineExceeded)
		case !sleep(ctx, 5*time.Millisecond):
			return ctx.Err()
		}
	}
}

func hasAllEnv(pid int, entries []string) bool {
	for _, e := range entries {
		if !hasEnv(pid, e) {
			return false
		}
	}
	return true
}

// runOnce runs the plan and returns the exit code. It calls ended once, when the process has ended or could not be
// started. The call may happen after runOnce has returned.
func (p plan) runOnce(ctx context.Context, stdout, stderr io.Writer, ended func()) (int, error) {
	outR, outW, err := os.Pipe()
	if err != nil {
		ended()
		return 0, err
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		ended()
		outR.Close()
		outW.Close()
		return 0, err
	}
	step, err := p.fork(outW, errW)
	outW.Close()
	errW.Close()
	copied := make(chan struct{}, 2)
	for from, to := range map[*os.File]io.Writer{outR: stdout, errR: stderr} {
		go func() {
			if to == nil {
				to = io.Discard
			}
			_, _ = io.Copy(to, from)
			from.Close()
			copied <- struct{}{}
		}()
	}
	code := 0
	if err == nil {
		code, err = step.wait(ctx, ended)
	} else {
		ended()
	}
	// A process that has left the process group may keep the pipes open. Its output is dropped after a second.
	timer := time.AfterFunc(time.Second, func() { outR.Close(); errR.Close() })
	defer timer.Stop()
	<-copied
	<-copied
	return code, err
}

// abandonAfter is how long initStep.wait waits for a command that was killed. A command in uninterruptible sleep, for
// example on a disk that does not answer, takes longer to end.
const abandonAfter = time.Second

// wait calls follow, but returns at most abandonAfter after ctx has ended, so that a step that can't be killed does not
// delay a stop of the instance. When the step ends, even if that is later, it is reaped and ended is called.
func (i initStep) wait(ctx context.Context, ended func()) (int, error) {
	type outcome struct {
		code int
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		code, err := i.follow(ctx)
		ended() // before the result is sent, because its receiver may run the next command at once
		done <- outcome{code, err}
	}()
	select {
	case o := <-done:
		return o.code, o.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(abandonAfter)
	defer timer.Stop()
	select {
	case o := <-done:
		return o.code, o.err
	case <-timer.C:
		return 0, ctx.Err()
	}
}

// follow waits until the step has ended, reaps it and returns its exit code. It kills the step's process group when ctx
// ends, when the program was not executed within initTimeout, and when the step has ended by itself.
func (i initStep) follow(ctx context.Context) (int, error) {
	var mu sync.Mutex
	reaped := false
	kill := func() {
		mu.Lock()
		defer mu.Unlock()
		if !reaped { // as long as the step is not reaped, no other group can get its number
			i.kill()
		}
	}
	defer context.AfterFunc(ctx, kill)()
	startErr := i.await(initTimeout)
	if startErr != nil {
		kill()
	}
	waitNoReap(i.pid)
	kill() // the group's other processes may still run
	mu.Lock()
	var ws syscall.WaitStatus
	_, err := syscall.Wait4(i.pid, &ws, 0, nil) // does not block, because the step has ended
	reaped = true
	mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case startErr != nil:
		return 0, startErr
	case err != nil:
		return 0, fmt.Errorf("wait for the command: %w", err)
	case ws.Signaled():
		return 128 + int(ws.Signal()), nil
	}
	return ws.ExitStatus(), nil
}

// waitNoReap blocks until the child has ended, and does not reap it.
func waitNoReap(pid int) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
