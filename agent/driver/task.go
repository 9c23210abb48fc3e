package driver

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/outspan/outspan/internal/erase"
	"github.com/outspan/outspan/model"
)

// Exit says how an instance ended. An instance has an Exit only once no process of it runs.
type Exit struct {
	Reason    Reason
	Code      int            // of the program; 128 + Signal if a signal ended it; -1 = unknown
	Signal    syscall.Signal // the signal that ended the program; 0 = no signal
	OOMKilled bool           // the kernel killed a process of the instance at the memory cap
	Message   string         // for people; may be empty
	StartedAt time.Time      // wall clock; zero = unknown
	EndedAt   time.Time      // wall clock
}

// Failed reports whether the end was neither a clean stop nor an exit with code 0.
func (e Exit) Failed() bool {
	return !(e.Reason == ReasonStopped || e.Reason == ReasonExited && e.Code == 0)
}

func unixSignal(n int) syscall.Signal { return syscall.Signal(n) }

// Task is one instance on this node, running or ended. Safe for concurrent use.
type Task struct {
	driver *Driver
	dir    stateDir
	launch launch
	shim   Identity
	main   Identity
	done   chan struct{}

	commands commands

	mu   sync.Mutex
	exit *Exit
}

func newTask(d *Driver, dir stateDir, l launch, exit *Exit) *Task {
	t := &Task{driver: d, dir: dir, launch: l, done: make(chan struct{})}
	if exit != nil {
		t.finish(*exit)
	}
	return t
}

// ID returns the instance's id.
func (t *Task) ID() ID { return t.launch.Spec.ID }

// Spec returns what the instance runs, with defaults filled in.
func (t *Task) Spec() Spec { return t.launch.Spec }

// Run returns the number of the latest run. The first start on this node is run 1.
func (t *Task) Run() int { return t.launch.Run }

// Dir returns the working directory.
func (t *Task) Dir() string { return t.launch.Dir }

// User returns the uid that the program runs as.
func (t *Task) User() int { return t.launch.Account.UID }

// Process returns the identity of the program's main process. It returns the zero Identity if that is unknown.
func (t *Task) Process() Identity {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.main.PID == 0 { // the instance was adopted while it was being started
		t.main, _ = t.dir.readIdentity(fileMain, t.launch.Run)
	}
	return t.main
}

// Alive reports whether the main process runs. Descendants may outlive the main process, so wait for Done to know that
// no process of the instance is left.
func (t *Task) Alive() bool { return !closed(t.done) && t.Process().Alive() }

// Done returns a channel that is closed when no process of the instance is left and Exit is known.
func (t *Task) Done() <-chan struct{} { return t.done }

// Wait blocks until the instance has ended, and returns its Exit. If ctx ends first, it returns the error of ctx.
func (t *Task) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-t.done:
		e, _ := t.Exit()
		return e, nil
	case <-ctx.Done():
		return Exit{}, ctx.Err()
	}
}

// Exit returns how the instance ended. It returns false while the instance runs.
func (t *Task) Exit() (Exit, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.exit == nil {
		return Exit{}, false
	}
	return *t.exit, true
}

func (t *Task) finish(e Exit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.exit == nil {
		t.exit = &e
		close(t.done)
	}
}

// record writes the exit to the disk, and then finishes the task. If the write fails, it still finishes the task. A
// later agent then finds that the shim is gone, and reports shim_lost.
func (t *Task) record(e Exit) {
	r := exitRecord{Run: t.launch.Run, Reason: e.Reason, Code: e.Code, Signal: int(e.Signal), OOM: e.OOMKilled,
		Message: e.Message, Ended: e.EndedAt.UnixMilli()}
	if !e.StartedAt.IsZero() {
		r.Started = e.StartedAt.UnixMilli()
	}
	if err := WriteRecord(t.dir.path(fileExit), r); err != nil {
		t.driver.cfg.Logger.Warn("exit could not be recorded", "instance", t.ID(), "error", err)
	}
	t.finish(e)
}

// Signal sends sig to the program's process group. It blocks for up to two seconds. Codes: CodeNotRunning (the program
// has ended), CodeSignalFailed (the kernel refuses the signal), CodeShimSilent (the shim does not answer; try again).
func (t *Task) Signal(ctx context.Context, sig syscall.Signal) error {
	return t.ask(ctx, request{Op: opSignal, Signal: int(sig)})
}

// Renew moves the end of the lease to until, unless the lease ends later already. It blocks for up to two seconds.
// Codes: CodeNotRunning (the lease or the instance has ended, or the instance is being killed), CodeStateFailed (the
// shim could not set its timer), CodeShimSilent (the shim does not answer; try again).
func (t *Task) Renew(ctx context.Context, until BootTime) error {
	return t.ask(ctx, request{Op: opLease, Until: until})
}

func (t *Task) errEnded() error {
	return model.Refuse(CodeNotRunning, "the program of instance %s has ended", t.ID())
}

func (t *Task) ask(ctx context.Context, req request) error {
	if closed(t.done) {
		return t.errEnded()
	}
	_, err := callShim(ctx, t.dir, req, 2*time.Second)
	var refused *model.Error
	switch {
	case err == nil || errors.As(err, &refused):
		return err
	case noShim(err):
		return t.errEnded()
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return model.Refuse(CodeShimSilent, "the shim of instance %s did not answer: %v", t.ID(), err)
}

// Remove deletes the state directory, the logs in it, the cgroup, and the working directory if the driver made it.
// Codes: CodeStillRunning (the instance has not ended, was started again, or is being started or removed),
// CodeStateFailed (something can't be deleted; try again).
func (t *Task) Remove() error {
	if !closed(t.done) {
		return model.Refuse(CodeStillRunning, "instance %s runs", t.ID()).WithHint("stop it first")
	}
	d := t.driver
	if err := d.claim(t.ID()); err != nil {
		return err
	}
	defer d.unclaim(t.ID())
	if now, _ := d.Task(t.ID()); now != t && now != nil {
		return model.Refuse(CodeStillRunning, "instance %s was started again", t.ID())
	}
	if err := t.remove(); err != nil {
		return model.Refuse(CodeStateFailed, "remove instance %s: %v", t.ID(), err)
	}
	d.mu.Lock()
	delete(d.tasks, t.ID())
	d.mu.Unlock()
	return nil
}

// RemoveWork deletes the working directory if the driver made it, and keeps the logs. Call it for an ended instance
// that will not be started again. Codes: CodeStillRunning (the instance has not ended, or is being started or removed),
// CodeStateFailed (the directory can't be deleted; try again).
func (t *Task) RemoveWork() error {
	if !closed(t.done) {
		return model.Refuse(CodeStillRunning, "instance %s runs", t.ID()).WithHint("stop it first")
	}
	if err := t.driver.claim(t.ID()); err != nil {
		return err
	}
	defer t.driver.unclaim(t.ID())
	return t.removeWork()
}

func (t *Task) removeWork() error {
	if !t.launch.OwnDir {
		return nil
	}
	if err := erase.Tree(t.launch.Dir); err != nil {
		return model.Refuse(CodeStateFailed, "remove working directory: %v", err)
	}
	return nil
}

// remove deletes the instance's cgroup and directories. It deletes the state directory last. If it is interrupted,
// Adopt still finds that directory, and deletes it if remove had renamed it already.
func (t *Task) remove() error {
	if c := t.launch.Cgroup.open(); c != nil {
		if err := c.remove(); err != nil {
			return err
		}
	}
	if err := t.removeWork(); err != nil {
		return err
	}
	gone := t.dir.removedName()
	if err := os.Rename(string(t.dir), gone); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return erase.Tree(gone)
}
