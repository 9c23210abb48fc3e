package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

const patience = 15 * time.Second // far longer than any condition needs

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for: %s", patience, what)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bench is a node with a real driver, and a control plane with one server.
type bench struct {
	*servers
	t     *testing.T
	dir   string
	cfg   Config
	beats Heartbeats
	agent *Agent
	end   func()
}

// newBench makes a bench and starts its agent. Each function in change may alter the agent's configuration.
func newBench(t *testing.T, change ...func(*Config)) *bench {
	t.Helper()
	t.Parallel() // most of the time is spent waiting
	//nolint:usetesting // other users must be able to pass through; they can't below TempDir
	dir, err := os.MkdirTemp("", "agent-test-")
	must(t, err)
	must(t, os.Chmod(dir, 0o711)) // so that instances of other users reach their directories
	b := &bench{servers: newServers(t), t: t, dir: dir, end: func() {}}
	b.cfg = Config{
		Name: "n1", DataDir: filepath.Join(dir, "data"), Servers: b.servers, Log: testLog(t),
		Node: NodeConfig{Address: "127.0.0.1", Capacity: model.Resources{CPU: 4000, MemoryBytes: 8 << 30}},
		Exec: ExecConfig{CgroupParent: "outspan-agent-test/" + filepath.Base(dir)},
	}
	for _, c := range change {
		c(&b.cfg)
	}
	t.Cleanup(b.clean)
	b.start()
	return b
}

func testLog(t testing.TB) hclog.Logger {
	if os.Getenv("AGENT_TEST_LOG") == "" {
		return hclog.NewNullLogger()
	}
	return hclog.New(&hclog.LoggerOptions{Name: t.Name(), Level: hclog.Debug})
}

// start starts the agent, which runs until stopAgent. If the servers accept the agent, start waits until instances may
// be placed on the node.
func (b *bench) start() {
	b.t.Helper()
	b.launch()
	if !b.down && !b.others {
		b.awaitEligible()
	}
}

// launch starts the agent, which runs until stopAgent. It does not wait for the registration.
func (b *bench) launch() {
	b.t.Helper()
	a, err := New(b.cfg)
	must(b.t, err)
	if b.beats != nil {
		a.UseHeartbeats(b.beats)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	b.agent = a
	ended := false
	b.end = func() {
		if ended {
			return
		}
		ended = true
		cancel(errors.New("the test ends the agent"))
		select {
		case err := <-done:
			if err != nil {
				b.t.Errorf("agent: %v", err)
			}
		case <-time.After(patience):
			b.t.Errorf("the agent did not end")
		}
	}
}

func (b *bench) awaitEligible() {
	b.t.Helper()
	eventually(b.t, "the node to be eligible", func() bool {
		st := b.m.State()
		n, ok := st.Nodes.Get(b.node())
		return ok && n.Agent.Incarnation == b.agent.Identity().Incarnation && st.Eligible(n) == nil
	})
}

func (b *bench) stopAgent() { b.end() }

func (b *bench) node() model.NodeID { return b.agent.Identity().Node }

// clean checks the state, stops the agent, kills the processes that the test left, and removes files and cgroups of the
// test.
func (b *bench) clean() {
	st := b.m.State()
	if !b.t.Failed() {
		if err := fsm.Check(st); err != nil {
			b.t.Errorf("state: %v", err)
		}
	}
	b.end()
	for _, pid := range b.processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	eventually(b.t, "no process to be left", func() bool { return len(b.processes()) == 0 })
	if err := os.RemoveAll(b.dir); err != nil {
		b.t.Error(err)
	}
	for _, m := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
		dirs, _ := filepath.Glob(m + b.cfg.Exec.CgroupParent)
		for _, d := range dirs {
			subs, _ := filepath.Glob(d + "/*")
			for _, sub := range subs {
				_ = os.Remove(sub)
			}
			_ = os.Remove(d)
		}
		tops, _ := filepath.Glob(m + filepath.Dir(b.cfg.Exec.CgroupParent))
		for _, top := range tops {
			_ = os.Remove(top)
		}
	}
}

// processes returns the pids of all processes that name the test's directory: shims in their arguments, programs in
// their environment.
func (b *bench) processes() []int {
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		cmd, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		env, _ := os.ReadFile("/proc/" + e.Name() + "/environ")
		if strings.Contains(string(cmd), b.dir) || strings.Contains(string(env), b.dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// pidOf waits until a program has written its pid to the file, and returns the pid.
func pidOf(t testing.TB, file string) int {
	t.Helper()
	pid := 0
	eventually(t, "a pid in "+filepath.Base(file), func() bool {
		b, err := os.ReadFile(file)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil && pid > 0
	})
	return pid
}

// alive reports whether a process runs. A zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, after, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(after, "Z")
}

// sh returns a group that runs a shell script as root.
func sh(script string) model.GroupSpec {
	return model.GroupSpec{
		Exec:    model.ExecSpec{Command: "/bin/sh", Args: []string{"-c", script}, User: "0"},
		Stop:    model.StopSpec{DrainDelay: 50 * model.Millisecond, Grace: 5 * model.Second},
		Restart: model.RestartSpec{Attempts: 3, Interval: model.Minute, Delay: 50 * model.Millisecond},
	}
}

// plainUser removes uid 0 from the group, unless the tests run as root.
func plainUser(g model.GroupSpec) model.GroupSpec {
	if os.Geteuid() != 0 && g.Exec.User == "0" {
		g.Exec.User = ""
	}
	return g
}

// run submits a job with one group, places one instance of it on the node, and returns the instance's id.
func (b *bench) run(job string, g model.GroupSpec, ports model.Ports) model.InstanceID {
	b.t.Helper()
	return b.place(b.submit(job, plainUser(g)), 0, b.node(), ports)
}

func (b *bench) await(id model.InstanceID, want model.Observed) fsm.Instance {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		i := b.instance(id)
		if i.Status.Observed == want {
			return i
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("instance %s is %s (%s), want %s; reported: %q", id, i.Status.Observed,
				i.Status.Reason, want, b.history(id))
		}
	}
}

// freePort returns a free port of the address.
func freePort(t testing.TB, address string) int {
	t.Helper()
	for range 1000 {
		port := 10000 + int(nextPort.Add(1)-1)%9000
		if l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port))); err == nil {
			must(t, l.Close())
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// nextPort counts the ports that freePort has tried. It starts at random, because several test programs run at once.
// The range of freePort is below the ports of instances and the kernel's ephemeral ports.
var nextPort = func() *atomic.Uint32 {
	var n atomic.Uint32
	n.Store(rand.Uint32N(9000))
	return &n
}()
