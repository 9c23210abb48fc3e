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

// Process is a program that is started, observed through the kernel, and ended. It may be started again after its end.
// Its methods are safe for concurrent use, except while it is started.
type Process struct {
	Name    string
	Command []string // the program and its arguments
	Env     []string // environment in addition to that of this process
	Log     string   // file that receives its output, behind what is there
	Data    string   // its data directory
	Family  *Family  // that must not reap it; default one of its own
	// Tied has the kernel kill the process when this one ends, for whatever reason. The kernel goes by the thread that
	// started it: don't set it where threads end early (runtime.LockOSThread without its opposite).
	Tied bool

	Ended chan struct{} // closed when the process has ended; nil before its first start

	cmd *exec.Cmd
}

// Start runs the process, in a process group of its own, and returns before it is ready. An error means that it runs
// already, or that it or its log could not be opened.
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
		_ = p.Family.Wait(cmd) // ExitCode tells how it ended
		close(ended)
	}()
	return nil
}

// Running reports whether the process has been started and has not ended.
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

// ExitCode returns the exit code of a process that has ended; -1 if a signal ended it.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Signal sends a signal to the process alone. It returns os.ErrProcessDone if the process does not run.
func (p *Process) Signal(s syscall.Signal) error {
	if !p.Running() {
		return os.ErrProcessDone
	}
	return p.cmd.Process.Signal(s)
}

// Kill ends the process with SIGKILL and waits until it has ended. What it started continues.
func (p *Process) Kill() {
	if p.cmd != nil {
		_ = p.Signal(syscall.SIGKILL) // it may have ended
		<-p.Ended
	}
}

// Wait blocks until a process that was started has ended. It returns an error if that takes longer than limit.
func (p *Process) Wait(limit time.Duration) error {
	select {
	case <-p.Ended:
		return nil
	case <-time.After(limit):
		return fmt.Errorf("%s has not ended after %s", p.Name, limit)
	}
}

// Stop asks the process to end. After limit it kills it, and returns an error.
func (p *Process) Stop(limit time.Duration) error {
	if !p.Running() {
		return nil
	}
	_ = p.Signal(syscall.SIGTERM) // it may have ended
	err := p.Wait(limit)
	p.Kill()
	return err
}

// Usage reads what the process uses from the kernel. An error means that it does not run.
func (p *Process) Usage() (Usage, error) {
	if !p.Running() {
		return Usage{}, fmt.Errorf("%s does not run", p.Name)
	}
	return UsageOf(p.PID())
}

// Descriptors returns the number of open files and sockets of the process; 0 if it has ended.
func (p *Process) Descriptors() int {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID())) // it may have ended
	return len(list)
}

// DiskBytes returns the size of its data directory in bytes, without the ballast.
func (p *Process) DiskBytes() int64 {
	var sum int64
	_ = filepath.WalkDir(p.Data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(d.Name(), "ballast") {
			return nil //nolint:nilerr // a snapshot may have been removed meanwhile
		}
		if info, err := d.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// LastLines returns the last n lines of its log, or why it can't be read.
func (p *Process) LastLines(n int) string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
