package driver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/agent/driver/inside"
	"github.com/outspan/outspan/model"
)

// fdLife is a pipe that the guard has besides the descriptors of an init step. Its other end is the agent's.
const fdLife = 5

// guarded is a command of Task.Enter beside a program. A process of its own watches it; see EnterMain.
type guarded struct {
	guard *exec.Cmd
	life  *os.File // when it is closed, the guard kills the command
}

// enterGuarded starts the guard with the plan, and waits until the command runs.
func (p plan) enterGuarded(terminal *Size) (command entered, ours stdio, err error) {
	var theirs stdio
	if terminal == nil {
		ours, theirs, err = pipes()
	} else {
		ours, theirs, err = terminalEnds(*terminal)
	}
	if err != nil {
		return nil, stdio{}, err
	}
	defer theirs.close()
	g := new(guarded)
	step, err := g.fork(p, theirs, terminal != nil)
	if err == nil {
		if err = step.await(initTimeout); err != nil {
			g.kill()
			_, _ = g.wait() // the guard ends as soon as what it started has
		}
	}
	if err != nil {
		ours.close()
		return nil, stdio{}, err
	}
	return g, ours, nil
}

// terminalEnds makes a terminal.
func terminalEnds(size Size) (ours, theirs stdio, err error) {
	master, slave, err := inside.OpenTerminal(size)
	if err != nil {
		return stdio{}, stdio{}, fmt.Errorf("open a terminal: %w", err)
	}
	return stdio{out: os.NewFile(uintptr(master), "terminal")}, stdio{out: os.NewFile(uintptr(slave), "terminal")}, nil
}

// fork starts the guard with the plan. After an error no process is left.
func (g *guarded) fork(p plan, theirs stdio, terminal bool) (initStep, error) {
	mem, err := p.memory()
	if err != nil {
		return initStep{}, err
	}
	defer mem.Close()
	status, statusW, err := os.Pipe()
	if err != nil {
		return initStep{}, err
	}
	defer statusW.Close()
	lifeR, life, err := os.Pipe()
	if err != nil {
		status.Close()
		return initStep{}, err
	}
	defer lifeR.Close()
	g.guard = exec.Command("/proc/self/exe") //nolint:noctx // the guard outlives ctx: it kills the command then
	g.guard.Args = []string{"outspan", "shim-enter"}
	g.guard.Env = append(initEnv(), p.marks()...)
	g.guard.Dir = "/"
	g.guard.Stdin, g.guard.Stdout, g.guard.Stderr = theirs.in, theirs.out, theirs.err
	if terminal {
		g.guard.Args = append(g.guard.Args, "terminal")
		g.guard.Stdin, g.guard.Stderr = theirs.out, theirs.out
	}
	g.guard.ExtraFiles = []*os.File{statusW, mem, lifeR} // fdStatus, fdPlan, fdLife
	g.guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := g.guard.Start(); err != nil {
		status.Close()
		life.Close()
		return initStep{}, err
	}
	g.life = life
	return initStep{pid: g.guard.Process.Pid, status: status}, nil
}

func (g *guarded) kill() { g.life.Close() }

func (g *guarded) wait() (int, error) {
	err := g.guard.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode(), nil
	}
	return 0, model.Refuse(CodeStateFailed, "the process that watches the command died: %v", err)
}

// EnterMain implements the hidden subcommand `shim-enter [terminal]`, the guard of one command of Task.Enter. It runs
// the plan in a session of its own; with "terminal", the standard streams become its controlling terminal. It returns
// the exit code of the command, or 128 plus the number of the signal that killed it, once no process of the command is
// left.
//
// When the command ends, or the agent closes the pipe fdLife, as it does by its own death, the guard kills the command
// and all its descendants. None of them can leave, because the guard is their subreaper.
func EnterMain(args []string) int {
	// The kernel kills the command when the thread that forked it ends, so this thread must last as long as the process.
	runtime.LockOSThread()
	CloseInherited(fdLife)
	for _, fd := range []int{fdStatus, fdPlan, fdLife} {
		unix.CloseOnExec(fd)
	}
	sigchld := shieldProcess()
	status := os.NewFile(fdStatus, "status")
	main, err := startEntered(len(args) > 0 && args[0] == "terminal")
	if err != nil {
		fmt.Fprintf(status, "E%v", err)
		return 125
	}
	status.Close()
	// The command has the only other ends now, so its streams end with it.
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		for fd := range 3 {
			_ = unix.Dup3(int(null.Fd()), fd, 0)
		}
	}
	gone := make(chan struct{})
	go func() {
		_, _ = os.NewFile(fdLife, "life").Read(make([]byte, 1)) // nothing is ever written
		close(gone)
	}()
	return guard(main, sigchld, gone)
}

// startEntered forks the init step of the plan, with the standard streams of this process.
func startEntered(terminal bool) (pid int, err error) {
	p, err := readPlan()
	if err != nil {
		return 0, fmt.Errorf("read the plan: %w", err)
	}
	p.Shim = os.Getpid()
	mem, err := p.memory()
	if err != nil {
		return 0, err
	}
	defer mem.Close()
	pid, err = syscall.ForkExec("/proc/self/exe", []string{"outspan", "shim-init"}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   append(initEnv(), p.marks()...),
		Files: []uintptr{0, 1, 2, fdStatus, mem.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: terminal},
	})
	if err != nil {
		return 0, fmt.Errorf("fork the init step: %w", err)
	}
	return pid, nil
}

// guard waits until no descendant of this process is left, and returns the exit code of the process main. When main has
// ended, or gone is closed, it kills all descendants.
func guard(main int, sigchld <-chan os.Signal, gone <-chan struct{}) int {
	code, killing := 0, false
	all := &shim{} // without cgroup: the guard's members are its descendants
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.ECHILD):
			return code
		case pid == main:
			killing = true
			if code = ws.ExitStatus(); ws.Signaled() {
				code = 128 + int(ws.Signal())
			}
			continue
		case pid > 0 || errors.Is(err, syscall.EINTR):
			continue
		}
		var retry <-chan time.Time
		if killing {
			all.killDescendants()
			retry = again.C
		}
		select {
		case <-sigchld:
		case <-gone:
			killing, gone = true, nil
		case <-retry:
		}
	}
}
