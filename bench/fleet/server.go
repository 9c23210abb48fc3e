package fleet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/outspan/outspan/transport"
)

// Server is one server process.
type Server struct {
	Name    string
	fleet   *Fleet
	address string
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the process has
}

// API is host:port of its API.
func (s *Server) API() string { return net.JoinHostPort(s.address, "7640") }

// Socket is the path of its local API.
func (s *Server) Socket() string { return filepath.Join(s.fleet.dir, s.Name+".sock") }

func (s *Server) data() string   { return filepath.Join(s.fleet.dir, s.Name) }
func (s *Server) config() string { return filepath.Join(s.fleet.dir, s.Name+".hcl") }
func (s *Server) log() string    { return filepath.Join(s.fleet.dir, s.Name+".log") }

// Start runs the process; it returns before the server answers. The process ends with this one, whatever ends it.
func (s *Server) Start(context.Context) error {
	out, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", s.Name, err)
	}
	defer out.Close() // the child has its own descriptor
	cmd := exec.Command(s.fleet.cfg.Binary, "server", "run", "--config", s.config())
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(append(os.Environ(), "OUTSPAN_PROFILE_NAME="+s.Name), s.fleet.cfg.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.Name, err)
	}
	s.cmd, s.ended = cmd, make(chan struct{})
	go func(ended chan struct{}) {
		_ = cmd.Wait() // how it ended shows in what it did
		close(ended)
	}(s.ended)
	return nil
}

// Running reports whether the process runs.
func (s *Server) Running() bool {
	if s.cmd == nil {
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// Kill ends the process with SIGKILL and waits until it has ended.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.ended
}

// Stop asks the process to end as planned, and kills it when it does not within limit.
func (s *Server) Stop(limit time.Duration) error {
	if !s.Running() {
		return nil
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s.ended:
		return nil
	case <-timer.C:
		s.Kill()
		return fmt.Errorf("%s did not end within %s", s.Name, limit)
	}
}

// Usage is what a process has used.
type Usage struct {
	CPU    time.Duration // of a core, since its start
	Memory int64         // resident bytes now
	Peak   int64         // the most that were resident
}

// Usage asks the kernel.
func (s *Server) Usage() (Usage, error) {
	if !s.Running() {
		return Usage{}, fmt.Errorf("%s does not run", s.Name)
	}
	dir := fmt.Sprintf("/proc/%d", s.cmd.Process.Pid)
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
		}
	}
	return u, err
}

// Descriptors counts the open files and sockets of the process.
func (s *Server) Descriptors() int {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid)) // it may have ended
	return len(list)
}

// DiskBytes is the size of its data directory.
func (s *Server) DiskBytes() int64 {
	var sum int64
	_ = filepath.WalkDir(s.data(), func(path string, d fs.DirEntry, err error) error {
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

// Applied is the index of the last entry in the server's state.
func (s *Server) Applied(ctx context.Context, c *transport.Client) (uint64, error) {
	answer, err := c.Send(ctx, transport.Request{Path: "/v1/settings", Query: map[string][]string{"consistency": {"stale"}}})
	return answer.Index, err
}

// Metric reads one series without labels from the server's metrics.
func (s *Server) Metric(ctx context.Context, c *transport.Client, name string) (float64, error) {
	answer, err := c.Send(ctx, transport.Request{Path: "/metrics"})
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(answer.Body)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("%s tells no metric %s", s.Name, name)
}

// LastLines is the end of its log.
func (s *Server) LastLines(n int) string {
	text, err := os.ReadFile(s.log())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
