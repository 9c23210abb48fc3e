package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a child process: it can be started, observed through the kernel, and stopped. Its methods are safe for
// concurrent use, except while it is started or killed.
type Process struct {
	Name    string
	Command []string // the program and its arguments
	Env     []string // environment variables, in addition to those of this process
	Log     string   // file that receives its output
	Data    string   // its data directory
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the process has exited
}

// Start starts the process and does not wait until it is ready. If this process exits for whatever reason, the kernel
// kills the child.
func (p *Process) Start() error {
	out, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", p.Name, err)
	}
	defer out.Close() // the child has its own descriptor
	cmd := exec.Command(p.Command[0], p.Command[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.cmd, p.ended = cmd, make(chan struct{})
	go func(ended chan struct{}) {
		_ = cmd.Wait() // the log shows why it exited
		close(ended)
	}(p.ended)
	return nil
}

// Running reports whether the process has been started and has not exited.
func (p *Process) Running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Kill kills the process with SIGKILL and waits until it has exited. It does nothing if the process was never started.
func (p *Process) Kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // fails if the process has exited already
	<-p.ended
}

// Stop sends SIGTERM. If the process does not exit within limit, Stop kills it and returns an error. It does nothing if
// the process does not run.
func (p *Process) Stop(limit time.Duration) error {
	if !p.Running() {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.ended:
		return nil
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("%s did not end within %s", p.Name, limit)
	}
}

// Usage is how much CPU time and memory a process uses.
type Usage struct {
	CPU    time.Duration // CPU time since its start
	Memory int64         // resident bytes now
	Peak   int64         // the most resident bytes since its start
	// the part of Memory that holds pages of files, such as the program or a mapped log; the kernel can drop these pages
	Files int64
}

// Usage reads the usage from the kernel. It fails if the process does not run.
func (p *Process) Usage() (Usage, error) {
	if !p.Running() {
		return Usage{}, fmt.Errorf("%s does not run", p.Name)
	}
	dir := fmt.Sprintf("/proc/%d", p.cmd.Process.Pid)
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Usage{}, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return Usage{}, errors.New("the kernel's line of the process is short")
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	u := Usage{CPU: time.Duration(user+system) * (time.Second / 100)}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "VmRSS:":
			u.Memory = n << 10
		case "VmHWM:":
			u.Peak = n << 10
		case "RssFile:":
			u.Files = n << 10
		}
	}
	return u, err
}

// Descriptors returns the number of open files and sockets of the process, or 0 if it has exited.
func (p *Process) Descriptors() int {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)) // fails if the process has exited
	return len(list)
}

// DiskBytes returns the size of the files in the process's data directory in bytes, without the ballast.
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

// Freeze suspends the process with SIGSTOP. Nothing resumes it, so it can only be killed afterwards.
func (p *Process) Freeze() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// LastLines returns the last n lines of the process's log, or the error if the log can't be read.
func (p *Process) LastLines(n int) string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
