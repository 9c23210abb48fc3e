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

// Command is something to run once beside an instance's program: a check, a hook, a person's command.
type Command struct {
	Argv   []string          // looked up as Spec.Command is
	Env    map[string]string // added to the instance's environment
	Stdout io.Writer         // nil = discarded
	Stderr io.Writer         // nil = discarded
	// Alone first kills what still runs of an earlier command with the same Env. An agent that was killed may have left
	// one.
	Alone bool
}

// Exec runs c as the instance's user, in its directory, mounts, environment, cgroup and rlimits. It returns the exit
// code of c, or 128 + signal if a signal ended it. It blocks until c has ended. When ctx ends, c and its process group
// are killed, and the error of ctx is returned. CodeNotRunning: the instance has ended. CodeStartFailed: c could not
// be executed. CodeStillRunning: earlier commands were killed and have not ended.
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
	p := t.launch.plan(c.Argv)
	p.Beside = t.Process()
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

// commands counts the checks and hooks that run beside an instance, including those that were killed and have not
// ended. Safe for many goroutines.
type commands struct {
	mu              sync.Mutex
	alive, followed int // processes; calls that wait for one
}

func (c *commands) add(alive, followed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alive, c.followed = c.alive+alive, c.followed+followed
}

func (c *commands) begin() { c.add(1, 1) }
func (c *commands) end()   { c.add(-1, 0) }
func (c *commands) leave() { c.add(0, -1) }

// stuck counts commands that nobody waits for any more.
func (c *commands) stuck() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.alive-c.followed, 0)
}

// killEarlier kills the processes of the instance that have all of env in their environment, with their descendants,
// and returns when they are gone. All are stopped before the first is killed: otherwise a script would go on with its
// next step when one step was killed.
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
				_ = v.signal(sig) // an error means that it has ended
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

// runOnce runs the plan to its end. It calls ended once, when the process has ended, which may be after runOnce
// returned.
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
	// A process that left the group may hold the pipes open; its output doesn't matter any more.
	timer := time.AfterFunc(time.Second, func() { outR.Close(); errR.Close() })
	defer timer.Stop()
	<-copied
	<-copied
	return code, err
}

// abandonAfter is how long a killed command may take to end. One in uninterruptible sleep, as on a disk that does not
// answer, takes longer.
const abandonAfter = time.Second

// wait waits until a step has ended, and reaps it. When ctx ends, and in any case at the end of the step, it kills the
// step's group. A step that does not end although it was killed is abandoned after abandonAfter, so that it can't
// delay a stop of the instance. Such a step is reaped when it ends; only then ended is called.
func (i initStep) wait(ctx context.Context, ended func()) (int, error) {
	type outcome struct {
		code int
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		code, err := i.follow(ctx)
		ended() // first: the receiver of the result may run the next command
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

// follow is wait without abandonAfter.
func (i initStep) follow(ctx context.Context) (int, error) {
	var mu sync.Mutex
	reaped := false
	kill := func() {
		mu.Lock()
		defer mu.Unlock()
		if !reaped { // until it is reaped, no other group can have its number
			_ = syscall.Kill(-i.pid, syscall.SIGKILL)
		}
	}
	defer context.AfterFunc(ctx, kill)()
	startErr := i.await(initTimeout)
	if startErr != nil {
		kill()
	}
	waitNoReap(i.pid)
	kill() // the rest of its group
	mu.Lock()
	var ws syscall.WaitStatus
	_, err := syscall.Wait4(i.pid, &ws, 0, nil) // a zombie: does not block
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

// waitNoReap blocks until the child has ended and leaves it a zombie.
func waitNoReap(pid int) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
