package cli

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/outspan/outspan/internal/procs"
)

// scriptCluster has the processes that the script command cluster starts: `outspan dev` and further agents.
type scriptCluster struct {
	ts    *testscript.TestScript
	dir   string
	parts []*procs.Process
	held  map[string]net.Listener // listeners of the script command hold, by the name of their variable
}

// clusterKey is the key of the scriptCluster among the values of a script.
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
	dir, err := os.MkdirTemp("", "outspan-script-") // not below $WORK, because the path of a unix socket must be short
	ts.Check(err)
	c := ts.Value(clusterKey{}).(*scriptCluster)
	if c.ts != nil {
		ts.Fatalf("a script has one cluster")
	}
	c.ts, c.dir = ts, dir
	ts.Setenv("OUTSPAN_ADDR", "unix://"+filepath.Join(dir, "api.sock"))
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
	p := &procs.Process{Name: name, Command: append([]string{c.ts.Getenv("OUTSPAN")}, args...),
		Env: []string{"NO_COLOR=1"}, Tied: true, Log: filepath.Join(c.dir, name+".log")}
	c.ts.Check(p.Start())
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
		if !p.Running() {
			c.ts.Fatalf("%s ended with exit code %d\n%s", p.Name, p.ExitCode(), p.LastLines(100))
		}
	}
	got, _, code := execute(c.ts, "outspan", "node", "ls", "--format", "{{.eligible}}")
	if n := strings.Count(got, "true"); code != 0 || n != want {
		return fmt.Errorf("exit code %d, %d of %d nodes are eligible", code, n, want)
	}
	return nil
}

// stop stops the jobs of the cluster first, because agents that stop leave their instances running. Then it stops the
// processes of the cluster.
func (c *scriptCluster) stop() {
	jobs, _, _ := execute(c.ts, "outspan", "job", "ls", "-o", "name")
	for job := range strings.FieldsSeq(jobs) {
		execute(c.ts, "outspan", "job", "stop", job, "--purge")
	}
	for job := range strings.FieldsSeq(jobs) {
		execute(c.ts, "outspan", "job", "stop", job, "--wait", "--timeout", "15s")
	}
	for _, p := range slices.Backward(c.parts) {
		if err := p.Stop(limit); err != nil || p.ExitCode() != 0 {
			c.ts.Logf("%s: exit code %d, %v\n%s", p.Name, p.ExitCode(), err, p.LastLines(100))
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
	i := slices.IndexFunc(c.parts, func(p *procs.Process) bool { return p.Name == name })
	if i < 0 {
		c.ts.Fatalf("there is no %s in this cluster", name)
	}
	c.parts[i].Kill()
	c.parts = slices.Delete(c.parts, i, i+1)
	kill(filepath.Join(c.dir, name) + "/")
}

// sweep kills processes that a failed script left running, such as shims and their programs. It removes the cluster's
// cgroups and directory.
func (c *scriptCluster) sweep() {
	kill(c.dir)
	if err := procs.RemoveCgroups("outspan-" + filepath.Base(c.dir)); err != nil {
		c.ts.Logf("remove cgroups: %v", err)
	}
	if err := os.RemoveAll(c.dir); err != nil {
		c.ts.Logf("remove the cluster's directory: %v", err)
	}
}

// kill kills the processes whose command line contains dir, and their descendants.
func kill(dir string) {
	procs.Kill(procs.Find(func(args string) bool { return strings.Contains(args, dir) })...)
}
