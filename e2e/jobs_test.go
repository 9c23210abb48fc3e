package e2e

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// job is a test's job: one group that runs demo-app, a subcommand of the outspan binary.
type job struct {
	name   string
	count  int
	args   []string // arguments of demo-app
	memory string   // default: 32MiB
	expose int      // exposed port of the group's service; 0 means that the group has no service
	more   string   // more blocks and keys of the group
}

func (j job) hcl(bin string) string {
	memory, service := j.memory, ""
	if memory == "" {
		memory = "32MiB"
	}
	if j.expose > 0 {
		service = fmt.Sprintf("    service %q {\n      port   = \"http\"\n      expose = %d\n    }\n", j.name, j.expose)
	}
	args := fmt.Sprintf("%q", append([]string{"demo-app"}, j.args...))
	return fmt.Sprintf(`job %q {
  group "http" {
    count = %d
    exec {
      command = %q
      args    = %s
    }
    resources {
      memory = %q
    }
    port "http" {}
%s    check "alive" {
      type     = "http"
      port     = "http"
      path     = "/healthz"
      interval = "250ms"
    }
%s
  }
}
`, j.name, j.count, bin, strings.ReplaceAll(args, `" "`, `", "`), memory, service, j.more)
}

// write writes the job's file into the cluster's directory and returns its path.
func (c *cluster) write(t testing.TB, j job) string {
	t.Helper()
	return c.writeText(t, j.name+".hcl", j.hcl(c.bin))
}

func (c *cluster) writeText(t testing.TB, name, text string) string {
	t.Helper()
	path := c.path("job-" + name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// run submits a job. It waits until all instances are ready, the deployment has succeeded, and nothing else of the job
// runs.
func (c *cluster) run(t testing.TB, j job) {
	t.Helper()
	c.must(t, "job", "run", c.write(t, j), "--detach")
	c.waitReady(t, j.name, j.count)
	waitFor(t, "the end of the deployment of "+j.name, patience, func() error {
		for _, v := range list[jobView](t, c, "/v1/jobs") {
			if v.Name == j.name && v.Stable != v.Version {
				return fmt.Errorf("version %d is stable, %d is wanted", v.Stable, v.Version)
			}
		}
		return nil
	})
	waitFor(t, "the end of what older versions of "+j.name+" run", patience, func() error {
		if n := len(c.instancesOf(j.name)); n != j.count {
			return fmt.Errorf("the kernel shows %d instances, want %d", n, j.count)
		}
		return nil
	})
}

// reset removes every job, ends every drain and makes every node accept instances, for the next test on the same
// cluster.
func (c *cluster) reset(t testing.TB) {
	t.Helper()
	for _, j := range list[jobView](t, c, "/v1/jobs") {
		// A purge that began earlier may end at any time.
		if r := c.cli(t, "job", "stop", j.Name, "--purge"); r.code != 0 && !strings.Contains(r.err, "(not_found)") {
			t.Fatal(r)
		}
	}
	for _, m := range c.agents {
		if n := c.node(t, m); n.Intent == "draining" || n.Intent == "cordoned" {
			c.must(t, "node", "uncordon", m.Name)
		}
	}
	waitFor(t, "the end of all jobs", patience, func() error {
		var l struct{ Items []jobView }
		if err := c.get("/v1/jobs", &l); err != nil {
			return err
		}
		if left := c.empty(c.agents...); len(l.Items) > 0 || len(left) > 0 {
			return fmt.Errorf("left are jobs %+v and processes %v", l.Items, left)
		}
		return nil
	})
	c.waitEligible(t, c.agents...)
}

// freePort returns a port that is free at every agent's address.
func (c *cluster) freePort(t testing.TB) int {
	t.Helper()
	return c.freePorts(t, 1)[0]
}

// freePorts returns ports that are free at every agent's address.
func (c *cluster) freePorts(t testing.TB, count int) (ports []int) {
	t.Helper()
	for port := 18080; port < 18180; port++ {
		free := true
		for _, m := range c.agents {
			l, err := net.Listen("tcp", net.JoinHostPort(m.address, fmt.Sprint(port)))
			if err == nil {
				l.Close()
			}
			free = free && err == nil
		}
		if free {
			ports = append(ports, port)
		}
		if len(ports) == count {
			return ports
		}
	}
	t.Fatal("too few ports are free at every agent's address")
	return nil
}
