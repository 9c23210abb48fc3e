package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/internal/erase"
	"github.com/outspan/outspan/model"
)

// Start runs spec under a new shim, and returns once the program has been executed. It gives up after
// Config.StartTimeout, or when ctx ends. The instance outlives ctx and the agent. If an instance of this id has ended,
// Start runs it again, with the same logs and, if the driver made it, the same working directory.
//
// Codes: CodeStillRunning (the instance runs, or is being started or removed), CodeInvalidSpec, CodeRootNotAllowed,
// CodeUserNotAllowed, CodeUserUnknown, CodeStateFailed, CodeStartFailed (the message names the step that failed). After
// a failed start no process of the instance runs. If its processes can't be killed, however, they and the state
// directory remain for the next Adopt.
func (d *Driver) Start(ctx context.Context, spec Spec) (*Task, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l, err := d.resolve(spec)
	if err != nil {
		return nil, err
	}
	id := l.Spec.ID
	if err := d.claim(id); err != nil {
		return nil, err
	}
	defer d.unclaim(id)
	old, known := d.Task(id)
	if known && !closed(old.done) {
		return nil, model.Refuse(CodeStillRunning, "instance %s runs already", id)
	}
	dir := d.dir(id)
	if known {
		l.Run = old.launch.Run + 1
		err = d.prepareAgain(dir, l)
	} else {
		err = d.prepare(dir, l)
	}
	if err != nil {
		return nil, model.Refuse(CodeStateFailed, "prepare instance %s: %v", id, err)
	}
	t, err := d.launch(ctx, dir, l)
	if err != nil {
		d.undo(dir, l, old)
		return nil, err
	}
	d.add(t)
	return t, nil
}

// prepare makes the state directory of a first run, and the directories that the instance needs. It makes the state
// directory under another name and then renames it, so that a directory with the name of an instance always has a
// launch.
func (d *Driver) prepare(dir stateDir, l launch) error {
	if _, err := os.Lstat(string(dir)); err == nil {
		return errors.New("a state directory of this id exists that was not adopted")
	}
	tmp := stateDir(filepath.Join(d.stateRoot(), prefixNew+string(l.Spec.ID)+"-"+l.Token[:8]))
	err := os.Mkdir(string(tmp), 0o700)
	if err == nil {
		err = WriteRecord(tmp.path(fileLaunch), l)
	}
	if err == nil {
		err = os.Rename(string(tmp), string(dir))
	}
	if err == nil {
		err = durable.SyncDir(d.stateRoot())
	}
	if err == nil {
		err = makeInstanceDirs(l)
	}
	if err != nil {
		_ = erase.Tree(string(tmp))
		_ = erase.Tree(string(dir))
	}
	return err
}

// prepareAgain replaces the launch of an instance that has ended. From then on the files of the earlier run are
// ignored, because their run number is lower.
func (d *Driver) prepareAgain(dir stateDir, l launch) error {
	if err := makeInstanceDirs(l); err != nil {
		return err
	}
	return WriteRecord(dir.path(fileLaunch), l)
}

// undo cleans up after a failed start. If processes may be left, it does nothing. After a first start, for which old is
// nil, it deletes the state directory and the instance's own working directory. After a later start it records the run
// as failed, so that the logs stay readable and the instance can be started again.
func (d *Driver) undo(dir stateDir, l launch, old *Task) {
	c := l.Cgroup.open()
	if left, err := leftovers(l, Identity{}, Identity{}); err != nil || len(left) > 0 || !c.empty() {
		return // the next Adopt finds the directory and tries again to kill the processes
	}
	if c != nil {
		if err := c.remove(); err != nil {
			d.cfg.Logger.Warn("cgroup of a failed start remains", "instance", l.Spec.ID, "error", err)
		}
	}
	if old == nil {
		_ = erase.Tree(string(dir))
		if l.OwnDir {
			_ = erase.Tree(l.Dir)
		}
		return
	}
	if e, ok := dir.readExit(l.Run); ok {
		d.add(newTask(d, dir, l, &e))
		return
	}
	t := newTask(d, dir, l, nil)
	t.record(Exit{Reason: ReasonStartFailed, Code: -1, Message: "the start was given up", EndedAt: time.Now()})
	d.add(t)
}

// launch starts the shim and waits for its report.
func (d *Driver) launch(ctx context.Context, dir stateDir, l launch) (*Task, error) {
	fail := func(format string, args ...any) error {
		return model.Refuse(CodeStartFailed, "start instance %s: %s", l.Spec.ID, fmt.Sprintf(format, args...))
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fail("%v", err)
	}
	defer r.Close()
	shim, err := d.forkShim(dir, w)
	w.Close()
	if err != nil {
		return nil, fail("%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.StartTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var rep startReport
	if err := ReadFrame(r, &rep, frameLimit); err != nil {
		d.abandon(dir, l, shim)
		if ctx.Err() != nil {
			return nil, fail("gave up waiting for the shim: %v", context.Cause(ctx))
		}
		return nil, fail("the shim ended early: %v; it said: %s", err, tail(dir.path(fileShimLog), 500))
	}
	if rep.Message != "" {
		awaitEnd(shim, 5*time.Second)
		return nil, fail("%s", rep.Message)
	}
	t := newTask(d, dir, l, nil)
	t.shim, t.main = shim, rep.Main
	return t, nil
}

// startReport is the only frame that a shim sends to the agent that started it.
type startReport struct {
	Message string   `cbor:"1,keyasint"` // "" = the program was executed
	Main    Identity `cbor:"2,keyasint"`
}

// shimEnv returns a shim's environment. It keeps the shim small, with one thread of Go code and frequent garbage
// collection. The agent's own environment is not passed on, because it may contain secrets.
func shimEnv() []string {
	return []string{"GOMAXPROCS=1", "GOGC=25", "GOMEMLIMIT=16MiB", "GOTRACEBACK=single", "PATH=/usr/bin:/bin"}
}

// forkShim starts the shim in a session of its own, so that signals of a terminal or of the agent's process group don't
// reach it. The output of the shim goes to shim.log.
func (d *Driver) forkShim(dir stateDir, report *os.File) (Identity, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return Identity{}, err
	}
	defer null.Close()
	out, err := os.OpenFile(dir.path(fileShimLog), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return Identity{}, err
	}
	defer out.Close()
	pid, err := syscall.ForkExec(d.cfg.Executable, []string{"outspan", "shim", string(dir)}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   shimEnv(),
		Files: []uintptr{null.Fd(), out.Fd(), out.Fd(), report.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return Identity{}, fmt.Errorf("start the shim %s: %w", d.cfg.Executable, err)
	}
	id, err := identify(pid) // works even if the shim has ended, because it is not reaped yet
	if err != nil {
		return Identity{}, fmt.Errorf("identify the shim: %w", err)
	}
	return id, nil
}

// abandon kills a shim that sent no report, and everything that the shim may have started.
func (d *Driver) abandon(dir stateDir, l launch, shim Identity) {
	_ = shim.signal(syscall.SIGKILL)
	awaitEnd(shim, 5*time.Second)
	main, _ := dir.readIdentity(fileMain, l.Run)
	if err := killLeftovers(d.ctx, l, shim, main); err != nil {
		d.cfg.Logger.Error("processes of a failed start remain", "instance", l.Spec.ID, "error", err)
	}
}

// awaitEnd waits up to d until the process has ended. If the process is a child of this one, awaitEnd also reaps it,
// for which it may take up to d again.
func awaitEnd(id Identity, d time.Duration) {
	if poll(d, 2*time.Millisecond, func() bool { return !id.Alive() }) {
		reapChild(id, d)
	}
}

// reapChild reaps the process if it is a zombie and a child of this one; otherwise it does nothing. It tries for up to
// d, because a zombie can be reaped only once its last thread has ended. It reaps no other child, because another part
// of the agent may wait for that child's status.
func reapChild(id Identity, d time.Duration) {
	poll(d, 2*time.Millisecond, func() bool {
		st, ok := id.stat()
		if !ok || !st.dead() || st.ppid != os.Getpid() {
			return true
		}
		pid, err := syscall.Wait4(id.PID, nil, syscall.WNOHANG, nil)
		return pid == id.PID || err != nil && err != syscall.EINTR
	})
}

// reapLate reaps a child that may take long to end, for example on a busy machine. It blocks until the process is gone
// or ctx ends. If the process is not a child of this one, it returns at once.
func reapLate(ctx context.Context, id Identity) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		if st, ok := id.stat(); !ok || st.ppid != os.Getpid() {
			return
		}
		if reapChild(id, 0); !sleep(ctx, pause) {
			return
		}
	}
}

// tail returns the last n bytes of a file for an error message, or "nothing" if there are none.
func tail(path string, n int64) string {
	f, err := os.Open(path)
	if err != nil {
		return "nothing"
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > n {
		_, _ = f.Seek(-n, io.SeekEnd)
	}
	b, _ := io.ReadAll(io.LimitReader(f, n))
	if len(b) == 0 {
		return "nothing"
	}
	return string(b)
}
