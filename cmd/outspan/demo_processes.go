package main

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

// sandbox is a whole cluster as real processes on loopback: a temporary directory, an own range of 127.x addresses, and every process below
// this one. It is a subreaper, so also a shim whose agent was killed stays its descendant, and nothing can be left behind.
type sandbox struct {
	dir     string
	binary  string
	network string // "127.A.B", so that demos side by side don't meet
	servers []*member
	agents  []*member
}

// member is one server or agent of the sandbox.
type member struct {
	name, address string
	port, gossip  int
	config        string
	role          string // server or agent
	process       *exec.Cmd
	ended         chan struct{} // closed when the process is gone
}

func (m *member) api() string { return net.JoinHostPort(m.address, strconv.Itoa(m.port)) }

func newSandbox(servers, agents int) (*sandbox, error) {
	// From here on no signal ends this process by itself: cleaning up takes a moment, and must not be cut short by a second Ctrl-C.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the reaper of the demo's processes: %w", err)
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the own program: %w", err)
	}
	dir, err := os.MkdirTemp("", "outspan-demo-")
	if err == nil {
		err = os.Chmod(dir, 0o711) // instances of other users pass through to directories of their own
	}
	if err != nil {
		return nil, fmt.Errorf("make a temporary directory: %w", err)
	}
	s := &sandbox{dir: dir, binary: binary, network: fmt.Sprintf("127.%d.%d", 1+rand.IntN(254), rand.IntN(255))}
	for i := range servers + agents {
		m := &member{role: "server", name: fmt.Sprintf("s%d", i+1), address: fmt.Sprintf("%s.%d", s.network, i+1)}
		if i >= servers {
			m.role, m.name = "agent", fmt.Sprintf("n%d", i-servers+1)
		}
		if m.port, m.gossip, err = freePorts(m.address); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		if m.role == "server" {
			s.servers = append(s.servers, m)
		} else {
			s.agents = append(s.agents, m)
		}
	}
	if err := s.writeConfigs(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// freePorts finds two ports of an address that nobody listens on now.
func freePorts(address string) (api, gossip int, err error) {
	first, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return 0, 0, fmt.Errorf("listen on %s: %w", address, err)
	}
	defer first.Close() // it only held the port
	second, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return 0, 0, fmt.Errorf("listen on %s: %w", address, err)
	}
	defer second.Close() // it only held the port
	return portOf(first), portOf(second), nil
}

func portOf(l net.Listener) int {
	if tcp, ok := l.Addr().(*net.TCPAddr); ok {
		return tcp.Port
	}
	return 0
}

func (s *sandbox) writeConfigs() error {
	var join, apis []string
	for _, m := range s.servers {
		join = append(join, strconv.Quote(net.JoinHostPort(m.address, strconv.Itoa(m.gossip))))
		apis = append(apis, strconv.Quote(m.api()))
	}
	for _, m := range append(append([]*member{}, s.servers...), s.agents...) {
		role := fmt.Sprintf("server {\n  bootstrap_expect = %d\n  retry_join = [%s]\n}\nsettings {\n  offline_after = \"2s\"\n}\n", len(s.servers), strings.Join(join, ", "))
		if m.role == "agent" {
			role = fmt.Sprintf("agent {\n  servers = [%s]\n  cgroup_root = %q\n  allow_root = true\n}\n", strings.Join(apis, ", "), s.cgroupRoot())
		}
		text := fmt.Sprintf("name = %q\ndata_dir = %q\n%stls {\n  dir = %q\n}\ngossip {\n  profile = \"fast\"\n}\nlisten {\n  address = %q\n  port = %d\n  gossip_port = %d\n  socket = %q\n}\n",
			m.name, filepath.Join(s.dir, m.name), role, filepath.Join(s.dir, "tls"), m.address, m.port, m.gossip, s.socket(m))
		m.config = filepath.Join(s.dir, m.name+".hcl")
		if err := os.WriteFile(m.config, []byte(text), 0o600); err != nil {
			return fmt.Errorf("write a configuration: %w", err)
		}
	}
	return nil
}

func (s *sandbox) cgroupRoot() string { return "outspan-" + filepath.Base(s.dir) }

func (s *sandbox) socket(m *member) string { return filepath.Join(s.dir, m.name+".sock") }

// start runs one member; its output goes to a file of the sandbox.
func (s *sandbox) start(m *member) error {
	logFile, err := os.OpenFile(filepath.Join(s.dir, m.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", m.name, err)
	}
	defer logFile.Close() // the child has its own descriptor
	cmd := exec.Command(s.binary, m.role, "run", "--config", m.config)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", m.name, err)
	}
	m.process, m.ended = cmd, make(chan struct{})
	go func() {
		cmd.Wait() //nolint:errcheck // how it ended is seen by what it did
		close(m.ended)
	}()
	return nil
}

// kill ends one member with SIGKILL, and with everything set also what it started: a machine that dies.
func (s *sandbox) kill(m *member, everything bool) {
	var below []int
	if everything {
		below = append(s.processesOf(m, "door"), s.processesOf(m, "shim")...)
	}
	m.process.Process.Kill() //nolint:errcheck // it may be gone already
	for _, pid := range below {
		syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it may be gone already
	}
	<-m.ended
}

// processesOf finds what one agent started of a kind, shim or door, by its directory, and all that runs below it.
func (s *sandbox) processesOf(m *member, kind string) []int {
	var pids []int
	data := []byte(filepath.Join(s.dir, m.name) + "/")
	children := childrenOf()
	for _, pid := range descendants(children, os.Getpid()) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && bytes.HasPrefix(line, []byte("outspan\x00"+kind+"\x00")) && bytes.Contains(line, data) {
			pids = append(append(pids, pid), descendants(children, pid)...)
		}
	}
	return pids
}

// childrenOf reads the process table: the children of every process.
func childrenOf() map[int][]int {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 {
			parent, _ := strconv.Atoi(fields[1])
			children[parent] = append(children[parent], pid)
		}
	}
	return children
}

func descendants(children map[int][]int, of int) []int {
	var all []int
	for _, child := range children[of] {
		all = append(append(all, child), descendants(children, child)...)
	}
	return all
}

// zombie reports whether a process has ended and only waits to be reaped.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return len(fields) > 0 && fields[0] == "Z"
}

// close ends every process below this one and removes all files and cgroups.
func (s *sandbox) close() error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		left := descendants(childrenOf(), os.Getpid())
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it may be gone already
		}
		reapOrphans()
		wait(context.Background(), 10*time.Millisecond)
	}
	return errors.Join(s.removeCgroups(), os.RemoveAll(s.dir))
}

// reapOrphans collects the exit status of what was handed to this process when its own parent died.
func reapOrphans() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if pid <= 0 || err != nil {
			return
		}
	}
}

func (s *sandbox) removeCgroups() error {
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

// removeCgroup removes a cgroup with those below it; only directories can be removed there.
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
	for range 200 { // the kernel needs a moment after the last process
		if failure = os.Remove(dir); failure == nil || os.IsNotExist(failure) {
			return nil
		}
		wait(context.Background(), 10*time.Millisecond)
	}
	return failure
}

// run executes one command of the CLI against the cluster and returns what it printed.
func (s *sandbox) run(ctx context.Context, args ...string) (string, int, error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var sockets []string
	for _, m := range s.servers {
		sockets = append(sockets, "unix://"+s.socket(m))
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

// get runs a command with --json and decodes its answer.
func (s *sandbox) get(ctx context.Context, to any, args ...string) error {
	out, code, err := s.run(ctx, append(args, "--json")...)
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
