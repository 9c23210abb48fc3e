package driver

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/outspan/outspan/agent/driver/inside"
	"github.com/outspan/outspan/model"
)

// Session is what Task.Enter runs beside an instance's program for a person.
type Session struct {
	Argv []string          // the program, looked up like Spec.Command, and its arguments
	Env  map[string]string // added to the instance's environment
	// Terminal, if not nil, is the first size of a terminal on which the command runs. Everything that the command prints
	// goes to Stdout then. Without it, the command has three pipes.
	Terminal *Size
	Resize   <-chan Size // further sizes of the terminal; may be nil
	// Stdin is what the command reads; nil means nothing. Enter does not wait for a call of Read that blocks when the
	// command ends.
	Stdin          io.Reader
	Stdout, Stderr io.Writer // nil means that the output is discarded
	Started        func()    // called once the command runs, before any output; may be nil
}

// Size is the size of a terminal.
type Size = inside.Size

// goneEvery is how often Enter looks whether the instance's program still runs.
const goneEvery = 100 * time.Millisecond

// Enter runs a command in a session of its own, as the instance's user, with the instance's directory, mounts,
// environment, cgroup and rlimits, or in its container. It blocks until the command has ended and its output was
// passed on, and returns the exit code, or 128 plus the number of the signal that killed the command. It kills what the
// command leaves running.
//
// When ctx or the instance's program ends, or when this process dies, the command and all its descendants are killed.
// If ctx has ended, Enter returns the error of ctx within about two seconds.
//
// It returns CodeNotRunning if the instance's program has ended or ends meanwhile, CodeInvalidSpec if s has no Argv,
// CodeStillRunning if earlier commands were killed but have not ended yet, and CodeStartFailed if the command can't be
// executed.
func (t *Task) Enter(ctx context.Context, s Session) (int, error) {
	switch {
	case !t.Alive():
		return 0, model.Refuse(CodeNotRunning, "instance %s does not run", t.ID())
	case len(s.Argv) == 0:
		return 0, model.Refuse(CodeInvalidSpec, "command in instance %s is empty", t.ID())
	case t.commands.stuck() > 0:
		return 0, model.Refuse(CodeStillRunning, "commands of instance %s were killed and have not ended", t.ID()).
			WithHint("look for processes in state D: a disk or a mount may not answer")
	}
	p := t.launch.Spec.launcher().beside(t, s.Argv)
	env := t.launch.fullEnv()
	for k, v := range s.Env {
		env[k] = v
	}
	p.Env = environ(env)
	e := &entering{session: s, ended: make(chan struct{})}
	if err := e.start(p); err != nil {
		return 0, model.Refuse(CodeStartFailed, "run %s in instance %s: %v", s.Argv[0], t.ID(), err)
	}
	alive, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go t.cancelAtEnd(alive, cancel)
	t.commands.begin()
	defer t.commands.leave()
	code, err := e.run(alive, t.commands.end)
	if err == nil && code > 128 && t.hasEnded() {
		return 0, t.errEnded() // what ended the instance killed the command too
	}
	return code, err
}

// hasEnded reports whether the instance's program has ended. It waits for that for up to goneEvery, because processes
// that are killed together end in any order.
func (t *Task) hasEnded() bool {
	return poll(goneEvery, goneEvery/20, func() bool { return !t.Alive() })
}

// cancelAtEnd calls cancel once the instance's program has ended. It returns then, or when ctx ends.
func (t *Task) cancelAtEnd(ctx context.Context, cancel context.CancelCauseFunc) {
	for t.Alive() {
		if !sleep(ctx, goneEvery) {
			return
		}
	}
	cancel(t.errEnded())
}

// entering is one run of Task.Enter.
type entering struct {
	session Session
	command entered
	ours    stdio // on a terminal only ours.out
	ended   chan struct{}
}

// entered is a command that Enter has started.
type entered interface {
	// kill kills the command and all its descendants, and does not wait. It does nothing once wait has returned.
	kill()
	// wait blocks until none of them is left, and returns the exit code of the command.
	wait() (int, error)
}

// stdio has one end of the three streams of a command. in and err are nil on a terminal, where out serves all.
type stdio struct{ in, out, err *os.File }

func (s stdio) close() {
	for _, f := range []*os.File{s.in, s.out, s.err} {
		if f != nil {
			f.Close()
		}
	}
}

// pipes returns both ends of three pipes. The command gets theirs.
func pipes() (ours, theirs stdio, err error) {
	for _, one := range []struct{ read, write **os.File }{
		{&theirs.in, &ours.in}, {&ours.out, &theirs.out}, {&ours.err, &theirs.err},
	} {
		if *one.read, *one.write, err = os.Pipe(); err != nil {
			theirs.close()
			ours.close()
			return stdio{}, stdio{}, err
		}
	}
	return ours, theirs, nil
}

// start starts the command, and returns once it runs. After an error nothing runs.
func (e *entering) start(p plan) (err error) {
	if p.Command != nil {
		e.command, e.ours, err = p.Command.enter(p, e.session.Terminal)
	} else {
		e.command, e.ours, err = p.enterGuarded(e.session.Terminal)
	}
	return err
}

// run passes the streams on until the command has ended. It calls ended once, when no process of the command is left,
// which may be after run has returned.
func (e *entering) run(ctx context.Context, ended func()) (int, error) {
	if e.session.Started != nil {
		e.session.Started()
	}
	defer e.command.kill()
	defer context.AfterFunc(ctx, e.command.kill)()
	var code int
	var failed error
	go func() {
		code, failed = e.command.wait()
		ended()
		e.hurry()
		close(e.ended)
	}()
	go e.feed()
	go e.resize()
	copied := make(chan struct{}, 2)
	for from, to := range map[*os.File]io.Writer{e.ours.out: e.session.Stdout, e.ours.err: e.session.Stderr} {
		go func() {
			if from != nil {
				e.drain(from, to)
			}
			copied <- struct{}{}
		}()
	}
	done := make(chan struct{})
	go func() {
		<-copied
		<-copied
		<-e.ended
		e.ours.close()
		close(done)
	}()
	if err := awaitUntil(ctx, done); err != nil {
		return 0, err
	}
	return code, failed
}

// awaitUntil waits until done is closed. After ctx has ended, it waits at most abandonAfter, and returns the cause.
func awaitUntil(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	timer := time.NewTimer(abandonAfter)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	return context.Cause(ctx)
}

// feed passes the input on until it or the command ends. On a terminal, the end of the input is sent as Ctrl-D.
func (e *entering) feed() {
	to := e.ours.in
	if to == nil {
		to = e.ours.out
	}
	if e.session.Stdin != nil {
		_, err := io.Copy(to, e.session.Stdin)
		if err == nil && e.session.Terminal != nil {
			_, _ = to.Write([]byte{4})
		}
	}
	if e.ours.in != nil {
		e.ours.in.Close()
	}
}

// resize changes the size of the terminal whenever another one comes, until the command ends.
func (e *entering) resize() {
	for {
		select {
		case size, open := <-e.session.Resize:
			if !open {
				return
			}
			if e.session.Terminal != nil {
				_ = setSize(e.ours.out, size) // the command may have ended
			}
		case <-e.ended:
			return
		}
	}
}

// outliveTime is how long output is awaited after the command has ended. A process that the command did not start may
// keep its output open.
const outliveTime = time.Second

// hurry makes reads of the output return, so that drain notices that the command has ended. It is called right before
// that is noted, so that it can't undo the deadline that drain sets afterwards.
func (e *entering) hurry() {
	for _, f := range []*os.File{e.ours.out, e.ours.err} {
		if f != nil {
			_ = f.SetReadDeadline(time.Now())
		}
	}
}

// drain passes on what the command prints. Once the command has ended, drain reads what is left, and returns when
// nothing more has come for outliveTime.
func (e *entering) drain(from *os.File, to io.Writer) {
	if to == nil {
		to = io.Discard
	}
	buf := make([]byte, 32<<10)
	for {
		last := closed(e.ended)
		if last && from.SetReadDeadline(time.Now().Add(outliveTime)) != nil {
			return
		}
		n, err := from.Read(buf)
		if n > 0 {
			if _, failed := to.Write(buf[:n]); failed != nil {
				from.Close() // the command gets SIGPIPE
				return
			}
		}
		if err != nil && (last || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return // a terminal that nobody has open any more returns EIO
		}
	}
}

func setSize(terminal *os.File, s Size) error {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = inside.SetSize(int(fd), s) })
	return errors.Join(err, failed)
}
