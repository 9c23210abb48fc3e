package procs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Sandbox is a cluster of real processes on loopback. It has its own temporary directory and its own range of 127.x
// addresses. This process becomes the reaper of its descendants. A shim whose agent was killed therefore remains a
// descendant, and Close finds and ends it. Only Run and Get are safe for concurrent use.
type Sandbox struct {
	Dir     string // directory of all files of the cluster
	Binary  string // path of this program
	Servers []*Process
	Agents  []*Process

	network string // "127.A.B", different for each sandbox, so that several can run at the same time
}

// Process is one server or agent of the sandbox.
type Process struct {
	Name, Address string
	Ended         chan struct{} // closed when the process is gone; nil before its first start

	port, gossip int
	config       string
	role         string // server or agent
	cmd          *exec.Cmd
}

func (m *Process) api() string { return net.JoinHostPort(m.Address, strconv.Itoa(m.port)) }

// New prepares a sandbox with so many servers (s1, s2, ...) and agents (n1, n2, ...); none of them runs yet. From then
// on SIGINT and SIGTERM no longer end this process: the caller handles them and calls Close. An error means that the
// directory, a free port or a configuration file could not be made.
func New(servers, agents int) (*Sandbox, error) {
	// Close takes a moment, and a second Ctrl-C must not interrupt it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the reaper of the cluster's processes: %w", err)
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "outspan-demo-")
	if err == nil {
		err = os.Chmod(dir, 0o711) // lets instances of other users pass through to their own directories
	}
	if err != nil {
		return nil, fmt.Errorf("make a temporary directory: %w", err)
	}
	s := &Sandbox{Dir: dir, Binary: binary, network: fmt.Sprintf("127.%d.%d", 1+rand.IntN(254), rand.IntN(255))}
	for i := range servers + agents {
		m := &Process{role: "server", Name: fmt.Sprintf("s%d", i+1), Address: fmt.Sprintf("%s.%d", s.network, i+1)}
		if i >= servers {
			m.role, m.Name = "agent", fmt.Sprintf("n%d", i-servers+1)
		}
		if m.port, m.gossip, err = FreePorts(m.Address); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		if m.role == "server" {
			s.Servers = append(s.Servers, m)
		} else {
			s.Agents = append(s.Agents, m)
		}
	}
	if err := s.writeConfigs(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// FreePorts finds two free ports of an address.
func FreePorts(address string) (api, gossip int, err error) {
	first, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return 0, 0, fmt.Errorf("listen on %s: %w", address, err)
	}
	defer first.Close() // it only reserves the port
	second, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return 0, 0, fmt.Errorf("listen on %s: %w", address, err)
	}
	defer second.Close() // it only reserves the port
	return portOf(first), portOf(second), nil
}

func portOf(l net.Listener) int {
	if tcp, ok := l.Addr().(*net.TCPAddr); ok {
		return tcp.Port
	}
	return 0
}

func (s *Sandbox) writeConfigs() error {
	var join, apis []string
	for _, m := range s.Servers {
		join = append(join, strconv.Quote(net.JoinHostPort(m.Address, strconv.Itoa(m.gossip))))
		apis = append(apis, strconv.Quote(m.api()))
	}
	for _, m := range append(append([]*Process{}, s.Servers...), s.Agents...) {
		role := fmt.Sprintf("server {\n  bootstrap_expect = %d\n  retry_join = [%s]\n"+
			"}\nsettings {\n  offline_after = \"2s\"\n}\n", len(s.Servers), strings.Join(join, ", "))
		if m.role == "agent" {
			role = fmt.Sprintf("agent {\n  servers = [%s]\n  cgroup_root = %q\n  allow_root = true\n}\n",
				strings.Join(apis, ", "), s.cgroupRoot())
		}
		text := fmt.Sprintf("name = %q\ndata_dir = %q\n%stls {\n  dir = %q\n}\ngossip {\n"+
			"  profile = \"fast\"\n}\nlisten {\n  address = %q\n  port = %d\n  gossip_port = %d\n  socket = %q\n}\n",
			m.Name, filepath.Join(s.Dir, m.Name), role, filepath.Join(s.Dir, "tls"), m.Address, m.port, m.gossip, s.Socket(m))
		m.config = filepath.Join(s.Dir, m.Name+".hcl")
		if err := os.WriteFile(m.config, []byte(text), 0o600); err != nil {
			return fmt.Errorf("write a configuration: %w", err)
		}
	}
	return nil
}

func (s *Sandbox) cgroupRoot() string { return "outspan-" + filepath.Base(s.Dir) }

// Socket returns the path of the unix socket of a server's or agent's API.
func (s *Sandbox) Socket(m *Process) string { return filepath.Join(s.Dir, m.Name+".sock") }

// Start starts one process; its output goes to a file of the sandbox.
func (s *Sandbox) Start(m *Process) error {
	logFile, err := os.OpenFile(filepath.Join(s.Dir, m.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", m.Name, err)
	}
	defer logFile.Close() // the child has its own descriptor
	cmd := exec.Command(s.Binary, m.role, "run", "--config", m.config)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", m.Name, err)
	}
	m.cmd, m.Ended = cmd, make(chan struct{})
	go func() {
		cmd.Wait() //nolint:errcheck // how it ended is seen by what it did
		close(m.Ended)
	}()
	return nil
}

// Kill ends one process with SIGKILL. With everything, it also ends the processes that this one started, as when a
// machine dies.
func (s *Sandbox) Kill(m *Process, everything bool) {
	var below []int
	if everything {
		below = append(s.ProcessesOf(m, "door"), s.ProcessesOf(m, "shim")...)
	}
	m.cmd.Process.Kill() //nolint:errcheck // it may be gone already
	for _, pid := range below {
		syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it may be gone already
	}
	<-m.Ended
}

// ProcessesOf returns the shims or doors (kind) that one agent started, and all their descendants. They are found by
// the agent's directory in their arguments.
func (s *Sandbox) ProcessesOf(m *Process, kind string) []int {
	var pids []int
	data := []byte(filepath.Join(s.Dir, m.Name) + "/")
	children := Children()
	for _, pid := range Descendants(children, os.Getpid()) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && bytes.HasPrefix(line, []byte("outspan\x00"+kind+"\x00")) && bytes.Contains(line, data) {
			pids = append(append(pids, pid), Descendants(children, pid)...)
		}
	}
	return pids
}

// Close ends every descendant of this process, and removes all files and cgroups of the sandbox.
func (s *Sandbox) Close() error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		left := Descendants(Children(), os.Getpid())
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it may be gone already
		}
		reapOrphans()
		<-time.After(10 * time.Millisecond)
	}
	return errors.Join(s.RemoveCgroups(), os.RemoveAll(s.Dir))
}

// RemoveCgroups removes the cgroups of the sandbox's agents.
func (s *Sandbox) RemoveCgroups() error {
	var failed error
	for _, pattern := range []string{"/sys/fs/cgroup/" + s.cgroupRoot(), "/sys/fs/cgroup/*/" + s.cgroupRoot()} {
		roots, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, root := range roots {
			failed = errors.Join(failed, removeCgroup(root))
		}
	}
	return failed
}

// removeCgroup removes a cgroup and those below it. The files in a cgroup can't be removed, only the directories.
func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil //nolint:nilerr // it is gone
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	var failure error
	for range 200 { // after the last process has ended, the kernel needs a moment
		if failure = os.Remove(dir); failure == nil || os.IsNotExist(failure) {
			return nil
		}
		<-time.After(10 * time.Millisecond)
	}
	return failure
}

// Run executes one command of the CLI against the cluster and returns its output and exit code.
func (s *Sandbox) Run(ctx context.Context, args ...string) (string, int, error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Binary, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var sockets []string
	for _, m := range s.Servers {
		sockets = append(sockets, "unix://"+s.Socket(m))
	}
	cmd.Env = append(os.Environ(), "OUTSPAN_ADDR="+strings.Join(sockets, ","), "NO_COLOR=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		return out.String(), exit.ExitCode(), nil
	}
	return out.String(), 0, err
}

// Get runs a command with --json and decodes its output into to.
func (s *Sandbox) Get(ctx context.Context, to any, args ...string) error {
	out, code, err := s.Run(ctx, append(args, "--json")...)
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("outspan %s: exit code %d: %s", strings.Join(args, " "), code, out)
	}
	if err := json.Unmarshal([]byte(out), to); err != nil {
		return fmt.Errorf("outspan %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
