package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watch waits until the instance has ended, and finishes the task. It keeps a connection to the shim open, because the
// connection breaks when the shim ends for any reason. If ctx ends first, watch returns and leaves the task as it is.
func (t *Task) watch(ctx context.Context) {
	pause := 5 * time.Millisecond
	for ctx.Err() == nil {
		t.holdConnection(ctx)
		if ctx.Err() != nil {
			return
		}
		alive := t.shim.Alive() // checked first, because a shim that is dead now writes no exit after the read below
		if e, ok := t.dir.readExit(t.launch.Run); ok {
			awaitEnd(t.shim, 5*time.Second)
			t.finish(e)
			reapLate(ctx, t.shim)
			return
		}
		if !alive {
			reapChild(t.shim, 5*time.Second)
			t.lost(ctx)
			return
		}
		// The shim runs but does not listen, because it is starting, exiting, or stopped by a signal. Look again, with
		// growing pauses.
		if !sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, time.Second)
	}
}

// holdConnection connects to the shim. It returns when the connection can't be opened or breaks, or when ctx ends.
func (t *Task) holdConnection(ctx context.Context) {
	c, err := dialControl(ctx, t.dir)
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if WriteFrame(c, request{Op: opWatch}) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c) // the shim sends one answer and then nothing until it ends
}

// lost handles the death of a shim that wrote no exit. It kills everything that the shim left, however long this takes,
// and then records an exit with shim_lost. If ctx ends first, it records no exit.
func (t *Task) lost(ctx context.Context) {
	log := t.driver.cfg.Logger
	log.Warn("shim lost, killing what it left", "instance", t.ID(), "shim", t.shim.PID)
	for {
		err := killLeftovers(ctx, t.launch, t.shim, t.Process())
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		log.Error("processes of a lost shim can't be killed", "instance", t.ID(), "error", err)
	}
	if c := t.launch.Cgroup.open(); c != nil {
		if err := c.remove(); err != nil {
			log.Warn("cgroup remains", "instance", t.ID(), "error", err)
		}
	}
	t.record(Exit{Reason: ReasonShimLost, Code: -1, Message: "its shim died; what it left was killed",
		EndedAt: time.Now()})
}

// leftoverTimeout is how long killLeftovers and killEarlier try to kill processes. Only a process in uninterruptible
// sleep takes longer to end.
const leftoverTimeout = 10 * time.Second

// killLeftovers kills the processes that a dead shim left, and returns nil once they have ended. It returns an error
// after leftoverTimeout, or when ctx ends.
func killLeftovers(ctx context.Context, l launch, shim, main Identity) error {
	c := l.Cgroup.open()
	deadline := time.Now().Add(leftoverTimeout)
	for {
		left, err := leftovers(l, shim, main)
		if err == nil && len(left) == 0 && c.empty() {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes of it can't be killed (%w)", errors.Join(err, os.ErrDeadlineExceeded))
		}
		if c != nil {
			_ = c.ctrl.killAll(c) // an error does not matter, because the next round checks what is left
		}
		for _, p := range left {
			_ = p.signal(syscall.SIGKILL)
		}
		if !sleep(ctx, 5*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// leftovers returns the living processes of a run whose shim is dead. These are the processes with the run's token in
// their environment and, if the run has no cgroup, the processes in the session or group of the shim or the program.
// All descendants of these processes are included. The list is empty for a run of another boot.
//
// Without a cgroup, leftovers misses a process that cleaned its environment, left the session and lost its parent
// before the shim died.
func leftovers(l launch, shim, main Identity) ([]Identity, error) {
	if boot, err := bootID(); err != nil || boot != l.Boot {
		return nil, err
	}
	list, err := processes()
	if err != nil {
		return nil, err
	}
	member := func(procStat) bool { return false }
	if l.Cgroup.Version == 0 {
		member = memberOf(list, shim, main)
	}
	mine := make(map[int]procStat)
	for _, p := range list {
		if p.pid == os.Getpid() || !member(p) && !hasEnv(p.pid, l.marker()) {
			continue
		}
		mine[p.pid] = p
		for _, c := range descendants(list, p.pid) {
			mine[c.pid] = c
		}
	}
	var found []Identity
	for _, p := range mine {
		if !p.dead() && p.pid != shim.PID {
			found = append(found, p.identity(l.Boot))
		}
	}
	return found, nil
}

// memberOf returns a function that reports whether a process is in the session or process group of one of the leaders.
// The kernel reuses a number only when no process, group or session has it. So if no other process has a leader's pid
// now, the processes in the session or group with this number belong to the leader.
func memberOf(list []procStat, leaders ...Identity) func(procStat) bool {
	var valid []Identity
	for _, id := range leaders {
		reused := slices.ContainsFunc(list, func(p procStat) bool { return p.pid == id.PID && p.start != id.Start })
		if id.PID != 0 && !reused {
			valid = append(valid, id)
		}
	}
	return func(p procStat) bool {
		return slices.ContainsFunc(valid, func(id Identity) bool {
			return (p.session == id.PID || p.pgrp == id.PID) && p.start >= id.Start
		})
	}
}

// shimPatience is how long a shim may take to answer Stop or Note. It is long enough for a busy node, because Stop
// kills a shim that does not answer.
const shimPatience = 4 * time.Second

// Stop sends sig to the program's process group and, after grace, SIGKILL to all processes that are left. It returns
// nil once no process is left. If ctx ends first, it returns the error of ctx, and the shim continues the stop. If sig
// is 0, the signal of the Spec is used. If grace is negative, the grace of the Spec is used. If grace is 0, everything
// is killed at once. Stop may be called again. The grace that ends first applies.
//
// If the shim is dead, the agent kills everything at once. If the shim does not answer, the agent stops the program and
// kills the shim. In both cases the exit has the reason shim_lost.
func (t *Task) Stop(ctx context.Context, sig syscall.Signal, grace time.Duration) error {
	if sig == 0 {
		sig = t.launch.Spec.Stop.Signal
	}
	if grace < 0 {
		grace = t.launch.Spec.Stop.Grace
	}
	req := request{Op: opStop, Signal: int(sig), GraceMS: grace.Milliseconds()}
	for !closed(t.done) {
		_, err := callShim(ctx, t.dir, req, shimPatience)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var silent net.Error
		if errors.As(err, &silent) && silent.Timeout() || errors.Is(err, context.DeadlineExceeded) {
			t.stopWithoutShim(ctx, sig, grace)
		}
		// The shim does the stop from here on. If it hangs later, the next round finds that out.
		select {
		case <-t.done:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(grace + 5*time.Second):
		}
	}
	return nil
}

// stopWithoutShim stops an instance whose shim runs but does not answer. It sends sig to the program's process group,
// waits until the program has ended or the grace is over, and kills the shim. After that, watch kills what the shim
// left. If ctx ends first, the shim is not killed.
func (t *Task) stopWithoutShim(ctx context.Context, sig syscall.Signal, grace time.Duration) {
	t.driver.cfg.Logger.Warn("shim does not answer, stopping without it", "instance", t.ID(), "shim", t.shim.PID)
	if main := t.Process(); grace > 0 && main.Alive() {
		_ = unix.Kill(-main.PID, sig)
		for deadline := time.Now().Add(grace); main.Alive() && time.Now().Before(deadline); {
			if !sleep(ctx, 20*time.Millisecond) {
				return
			}
		}
	}
	_ = t.shim.signal(syscall.SIGKILL)
}

// sleep blocks for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
