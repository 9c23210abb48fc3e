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
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Sandbox is a cluster of real processes on loopback. It has its own temporary directory and its own range of 127.x
// addresses. Its members use the default ports, so no process of this machine may listen there on all addresses. This
// process becomes the reaper of its descendants. So a shim whose agent was killed remains a descendant, and Close finds
// and kills it. Only Run and Get are safe for concurrent use.
type Sandbox struct {
	Dir     string // directory of all files of the cluster, and working directory of all commands
	Binary  string // path of this program
	Servers []*Member
	Agents  []*Member

	family Family
}

// Member is one server or agent of the sandbox. Sandbox.SetUp must be called before Start.
type Member struct {
	Process
	Address string

	role string // server or agent
}

// New prepares a sandbox with servers s1, s2, ... and agents n1, n2, ..., but sets up none of them. After New, SIGINT
// and SIGTERM no longer stop this process. The caller must handle these signals and call Close. New returns an error if
// this process can't become the reaper, or if it can't make the directory.
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
		err = os.Chmod(dir, 0o711) // instances of other users must pass through to their own directories
	}
	if err != nil {
		return nil, fmt.Errorf("make a temporary directory: %w", err)
	}
	s, network := &Sandbox{Dir: dir, Binary: binary}, Network()
	for i := range servers {
		s.Servers = append(s.Servers, s.newMember("server", fmt.Sprintf("s%d", i+1), fmt.Sprintf("%s.%d", network, 1+i)))
	}
	for i := range agents {
		s.Agents = append(s.Agents, s.newMember("agent", fmt.Sprintf("n%d", i+1), fmt.Sprintf("%s.%d", network, 101+i)))
	}
	return s, nil
}

func (s *Sandbox) newMember(role, name, address string) *Member {
	return &Member{role: role, Address: address, Process: Process{Name: name, Family: &s.family,
		Log: filepath.Join(s.Dir, name+".log"), Data: filepath.Join(s.Dir, name)}}
}

// SetUp makes a member's machine a part of the cluster, so that Start can start it. It runs the command args, which is
// outspan up or outspan join, with further flags by which members share this machine. It returns an error if the
// command fails, or if it can't write the configuration.
func (s *Sandbox) SetUp(ctx context.Context, m *Member, args ...string) error {
	dir := filepath.Join(s.Dir, m.Name+".d")
	_, err := s.must(ctx, slices.Concat(args, []string{"--no-start", "--name", m.Name, "--advertise", m.Address,
		"--config", dir, "--data", m.Data})...)
	if err != nil {
		return err
	}
	text := "gossip {\n  profile = \"fast\"\n}\nsettings {\n  offline_after = \"2s\"\n}\n"
	if m.role == "agent" {
		text = fmt.Sprintf("gossip {\n  profile = \"fast\"\n}\nagent {\n  cgroup_root = %q\n  allow_root = true\n}\n",
			s.cgroupRoot())
	}
	if err := os.WriteFile(filepath.Join(dir, "sandbox.hcl"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the configuration of %s: %w", m.Name, err)
	}
	m.Command = []string{s.Binary, m.role, "run", "--config", dir}
	return nil
}

// Network returns the first three bytes of a random loopback network, "127.A.B". The network is very probably not in
// use.
func Network() string { return fmt.Sprintf("127.%d.%d", 32+rand.IntN(200), 1+rand.IntN(250)) }

// FreePorts finds two TCP ports that are free at an address. Another process may take them before the caller uses them.
func FreePorts(address string) (api, gossip int, err error) {
	first, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return 0, 0, fmt.Errorf("listen on %s: %w", address, err)
	}
	defer first.Close() // not before second is open, so that second gets another port
	second, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return 0, 0, fmt.Errorf("listen on %s: %w", address, err)
	}
	defer second.Close()
	return portOf(first), portOf(second), nil
}

func portOf(l net.Listener) int {
	if tcp, ok := l.Addr().(*net.TCPAddr); ok {
		return tcp.Port
	}
	return 0
}

func (s *Sandbox) cgroupRoot() string { return "outspan-" + filepath.Base(s.Dir) }

// Members returns the servers and the agents.
func (s *Sandbox) Members() []*Member { return slices.Concat(s.Servers, s.Agents) }

// Socket returns the path of the unix socket on which a server or agent answers the API.
func (s *Sandbox) Socket(m *Member) string { return filepath.Join(m.Data, "api.sock") }

// KillAll kills an agent, all its shims and doors, and all their descendants, as when a machine dies.
func (s *Sandbox) KillAll(m *Member) {
	below := append(s.ProcessesOf(m, "door"), s.ProcessesOf(m, "shim")...)
	m.Kill()
	Kill(below...)
}

// ProcessesOf returns the process ids of an agent's shims or doors, and of all their descendants. kind is "shim" or
// "door". Shims and doors are found by the agent's data directory in their arguments.
func (s *Sandbox) ProcessesOf(m *Member, kind string) []int {
	return Find(func(args string) bool {
		return strings.HasPrefix(args, "outspan\x00"+kind+"\x00") && strings.Contains(args, m.Data+"/")
	})
}

// Close kills all descendants of this process, and removes all files and cgroups of the sandbox.
func (s *Sandbox) Close() error {
	return errors.Join(s.family.End(), RemoveCgroups(s.cgroupRoot()), os.RemoveAll(s.Dir))
}

// RemoveCgroups removes the cgroups that have this name in any hierarchy, with all cgroups below them. The name may be
// a pattern of filepath.Glob. RemoveCgroups tries for up to 2 s to remove each cgroup.
func RemoveCgroups(name string) error {
	var failed error
	for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
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

// removeCgroup removes a cgroup and the cgroups below it. The kernel removes a cgroup's files together with its
// directory.
func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil //nolint:nilerr // the cgroup no longer exists
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	// A cgroup can only be removed a moment after its last process has exited.
	return Until(context.Background(), 2*time.Second, 10*time.Millisecond, func(context.Context) error {
		if err := os.Remove(dir); !os.IsNotExist(err) {
			return err
		}
		return nil
	})
}

// Run executes one command of the CLI, in the directory of the sandbox, against the servers that are set up. It returns
// what the command wrote, and the exit code. An error means that the command could not run, or that it did not finish
// within 90 s or before ctx ended.
func (s *Sandbox) Run(ctx context.Context, args ...string) (string, int, error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Binary, args...)
	cmd.Dir = s.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var sockets []string
	for _, m := range s.Servers {
		if m.Command != nil {
			sockets = append(sockets, "unix://"+s.Socket(m))
		}
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

// must runs a command, and returns what it wrote. It returns an error if the exit code is not 0.
func (s *Sandbox) must(ctx context.Context, args ...string) (string, error) {
	out, code, err := s.Run(ctx, args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("outspan %s: exit code %d: %s", strings.Join(args, " "), code, out)
	}
	return out, err
}

// Get runs a command with --json and decodes the output into *to. It returns an error if the exit code is not 0.
func (s *Sandbox) Get(ctx context.Context, to any, args ...string) error {
	out, err := s.must(ctx, append(args, "--json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), to); err != nil {
		return fmt.Errorf("outspan %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
