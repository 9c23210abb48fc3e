package cli

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/outspan/outspan/internal/procs"
)

// scriptCluster is started by the command cluster: `outspan dev`, and further agents as separate processes.
type scriptCluster struct {
	ts    *testscript.TestScript
	dir   string
	parts []*scriptPart
	held  map[string]net.Listener // ports that the script holds, by the name of their variable
}

// scriptPart is one process.
type scriptPart struct {
	name  string
	cmd   *exec.Cmd
	out   bytes.Buffer
	ended chan error
}

// clusterKey is the key of the cluster among a script's values.
type clusterKey struct{}

func startCluster(ts *testscript.TestScript, neg bool, args []string) {
	agents := 1
	if len(args) == 1 {
		n, err := strconv.Atoi(args[0])
		ts.Check(err)
		agents = n
	}
	if neg || len(args) > 1 || agents < 1 {
		ts.Fatalf("usage: cluster [N]")
	}
	dir, err := os.MkdirTemp("", "outspan-script-") // not below $WORK, since the path of a unix socket must be short
	ts.Check(err)
	c := ts.Value(clusterKey{}).(*scriptCluster)
	if c.ts != nil {
		ts.Fatalf("a script has one cluster")
	}
	c.ts, c.dir = ts, dir
	ts.Setenv("OUTSPAN_ADDR", "unix://"+filepath.Join(dir, "api.sock"))
	ts.Setenv("CLUSTER", dir)
	ts.Setenv("CLUSTER", dir)
	ts.Defer(c.stop)
	c.start("dev", "dev", "--dir", dir)
	await(ts, "a node that takes instances", func() error { return c.eligible(1) })
	for i := 2; i <= agents; i++ {
		c.startAgent(fmt.Sprintf("n%d", i), "0", "0")
	}
	await(ts, "every node", func() error { return c.eligible(agents) })
}

func (c *scriptCluster) start(name string, args ...string) {
	p := &scriptPart{name: name, cmd: exec.Command(c.ts.Getenv("OUTSPAN"), args...), ended: make(chan error, 1)}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.Env = append(os.Environ(), "NO_COLOR=1")
	c.ts.Check(p.cmd.Start())
	go func() { p.ended <- p.cmd.Wait() }()
	c.parts = append(c.parts, p)
}

// startAgent starts an agent that uses the certificate in the directory of `outspan dev`.
func (c *scriptCluster) startAgent(name, port, gossip string) {
	server, _, code := execute(c.ts, "outspan", "server", "members", "--format", "{{.address}}")
	if code != 0 {
		c.ts.Fatalf("the server gives no address")
	}
	text := fmt.Sprintf(`name     = %q
data_dir = %q
agent {
  servers     = [%q]
  cgroup_root = %q
  backup_dir  = %q
  allow_root  = true
  labels      = { rack = "r2" }
}
tls { dir = %q }
gossip { profile = "fast" }
listen {
  port        = %s
  gossip_port = %s
}
log { level = "warn" }
`, name, filepath.Join(c.dir, name), strings.TrimSpace(server), "outspan-"+filepath.Base(c.dir), filepath.Join(c.dir, "backups"), filepath.Join(c.dir, "tls"), port, gossip)
	file := filepath.Join(c.dir, name+".hcl")
	c.ts.Check(os.WriteFile(file, []byte(text), 0o600))
	c.start(name, "agent", "run", "--config", file)
}

func (c *scriptCluster) eligible(want int) error {
	for _, p := range c.parts {
		select {
		case err := <-p.ended:
			p.ended <- err
			c.ts.Fatalf("%s ended: %v\n%s", p.cmd, err, p.out.String())
		default:
		}
	}
	got, _, code := execute(c.ts, "outspan", "node", "ls", "--format", "{{.eligible}}")
	if n := strings.Count(got, "true"); code != 0 || n != want {
		return fmt.Errorf("exit code %d, %d of %d nodes are eligible", code, n, want)
	}
	return nil
}

// stop ends the cluster and everything that runs in it. Agents alone would leave their instances running.
func (c *scriptCluster) stop() {
	jobs, _, _ := execute(c.ts, "outspan", "job", "ls", "-o", "name")
	for job := range strings.FieldsSeq(jobs) {
		execute(c.ts, "outspan", "job", "stop", job, "--purge")
	}
	for job := range strings.FieldsSeq(jobs) {
		execute(c.ts, "outspan", "job", "stop", job, "--wait", "--timeout", "15s")
	}
	for _, p := range slices.Backward(c.parts) {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			c.ts.Logf("stop %s: %v", p.cmd, err)
		}
		select {
		case err := <-p.ended:
			if err != nil {
				c.ts.Logf("%s: %v\n%s", p.cmd, err, p.out.String())
			}
		case <-time.After(limit):
			_ = p.cmd.Process.Kill() // a child of this process that hangs
			c.ts.Logf("%s did not end on SIGTERM\n%s", p.cmd, p.out.String())
		}
	}
	c.sweep()
}

func crashAgent(ts *testscript.TestScript, neg bool, args []string) {
	c := ts.Value(clusterKey{}).(*scriptCluster)
	if neg || len(args) != 1 || c.ts == nil {
		ts.Fatalf("usage: crash NAME, after cluster")
	}
	c.crash(args[0])
}

// crash simulates the failure of a machine: it kills an agent and everything that the agent runs.
func (c *scriptCluster) crash(name string) {
	i := slices.IndexFunc(c.parts, func(p *scriptPart) bool { return p.name == name })
	if i < 0 {
		c.ts.Fatalf("there is no %s in this cluster", name)
	}
	c.ts.Check(c.parts[i].cmd.Process.Kill())
	<-c.parts[i].ended
	c.parts = slices.Delete(c.parts, i, i+1)
	c.kill(filepath.Join(c.dir, name) + "/")
}

// sweep ends what a failed script left running: shims below the cluster's directory, and their processes.
func (c *scriptCluster) sweep() {
	c.kill(c.dir)
	s := &procs.Sandbox{Dir: c.dir}
	if err := s.RemoveCgroups(); err != nil {
		c.ts.Logf("remove cgroups: %v", err)
	}
	if err := os.RemoveAll(c.dir); err != nil {
		c.ts.Logf("remove the cluster's directory: %v", err)
	}
}

// kill ends the processes whose command line contains a directory of the cluster, and their descendants.
func (c *scriptCluster) kill(dir string) {
	entries, err := os.ReadDir("/proc")
	c.ts.Check(err)
	children := procs.Children()
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil || !bytes.Contains(line, []byte(dir)) {
			continue
		}
		for _, child := range append(procs.Descendants(children, pid), pid) {
			_ = syscall.Kill(child, syscall.SIGKILL) // it may already have ended
		}
	}
}
