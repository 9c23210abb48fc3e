package procs

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Process is a program that can be started, observed through the kernel, and stopped. Once it has exited, it may be
// started again. Its methods are safe for concurrent use, except during Start.
type Process struct {
	Name    string
	Command []string // the program and its arguments
	Env     []string // variables in addition to the environment of this process
	Log     string   // file to which the program's output is appended
	Data    string   // the program's data directory
	Family  *Family  // the family that starts the process; nil means a new family
	// Tied makes the kernel kill the process when this process exits, for whatever reason. In fact the kernel watches the
	// thread that called Start. So don't set Tied if that thread may exit earlier. A thread exits when a goroutine that
	// has called runtime.LockOSThread returns without unlocking the thread.
	Tied bool

	Ended chan struct{} // closed when the process has exited; nil before its first start

	cmd *exec.Cmd
}

// Start starts the process in a process group of its own, and does not wait until the process is ready. It returns an
// error if the process runs already, if the process can't be started, or if the log can't be opened.
func (p *Process) Start() error {
	if p.Running() {
		return fmt.Errorf("%s runs already", p.Name)
	}
	out, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", p.Name, err)
	}
	defer out.Close() // the child has its own descriptor
	if p.Family == nil {
		p.Family = &Family{}
	}
	cmd, ended := exec.Command(p.Command[0], p.Command[1:]...), make(chan struct{})
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.Tied {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if err := p.Family.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.cmd, p.Ended = cmd, ended
	go func() {
		_ = p.Family.Wait(cmd) // ExitCode has the result
		close(ended)
	}()
	return nil
}

// Running reports whether the process has been started and has not exited.
func (p *Process) Running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.Ended:
		return false
	default:
		return true
	}
}

// PID returns the process id of the last start.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// ExitCode returns the exit code of a process that has exited, or -1 if a signal killed it.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Signal sends a signal to the process alone. It returns os.ErrProcessDone if the process does not run.
func (p *Process) Signal(s syscall.Signal) error {
	if !p.Running() {
		return os.ErrProcessDone
	}
	return p.cmd.Process.Signal(s)
}

// Kill kills the process with SIGKILL and waits until it has exited. The children of the process continue.
func (p *Process) Kill() {
	if p.cmd != nil {
		_ = p.Signal(syscall.SIGKILL) // the process may have exited
		<-p.Ended
	}
}

// Wait blocks until the process has exited. If limit passes first, Wait returns an error. The process must have been
// started.
func (p *Process) Wait(limit time.Duration) error {
	select {
	case <-p.Ended:
		return nil
	case <-time.After(limit):
		return fmt.Errorf("%s has not ended after %s", p.Name, limit)
	}
}

// Stop sends SIGTERM to the process and waits until it has exited. If limit passes first, Stop kills the process and
// returns an error. If the process does not run, Stop does nothing.
func (p *Process) Stop(limit time.Duration) error {
	if !p.Running() {
		return nil
	}
	_ = p.Signal(syscall.SIGTERM) // the process may have exited
	err := p.Wait(limit)
	p.Kill()
	return err
}

// Usage asks the kernel how much CPU time and memory the process uses. It returns an error if the process does not run.
func (p *Process) Usage() (Usage, error) {
	if !p.Running() {
		return Usage{}, fmt.Errorf("%s does not run", p.Name)
	}
	return UsageOf(p.PID())
}

// Descriptors returns the number of open files and sockets of the process, or 0 if the process has exited.
func (p *Process) Descriptors() int {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID())) // the process may have exited
	return len(list)
}

// DiskBytes returns the total size of the files in the data directory, without the ballast.
func (p *Process) DiskBytes() int64 {
	var sum int64
	_ = filepath.WalkDir(p.Data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(d.Name(), "ballast") {
			return nil //nolint:nilerr // a file may have been removed since it was listed
		}
		if info, err := d.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// LastLines returns the last n lines of the process's log, or the reason why the log can't be read.
func (p *Process) LastLines(n int) string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
