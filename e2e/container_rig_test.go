package e2e

import (
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/outspan/outspan/internal/testbed/ctrd"
)

// containerRig is a containerd and a registry that the agents of a cluster use.
type containerRig struct {
	daemon   *ctrd.Daemon
	registry *ctrd.Registry
	certs    string // directory that leads to the registry
}

const registryName = "registry.test"

// newContainerRig starts a containerd, and a registry that listens there, by default on the loopback interface.
func newContainerRig(t *testing.T, there ...net.Listener) *containerRig {
	t.Helper()
	daemon, dir := newDaemon(t)
	r := &containerRig{daemon: daemon, registry: &ctrd.Registry{}, certs: filepath.Join(dir, "certs")}
	server := httptest.NewUnstartedServer(r.registry)
	if len(there) > 0 {
		_ = server.Listener.Close()
		server.Listener = there[0]
	}
	server.Start()
	t.Cleanup(server.Close)
	hosts := fmt.Sprintf("server = %q\n[host.%q]\ncapabilities = [\"pull\", \"resolve\"]\n", server.URL, server.URL)
	if err := os.MkdirAll(filepath.Join(r.certs, registryName), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.certs, registryName, "hosts.toml"), []byte(hosts), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// newDaemon starts a containerd, and returns its directory too.
func newDaemon(t *testing.T) (*ctrd.Daemon, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ctrd-") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := ctrd.Start(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Kill()
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove containerd's files: %v", err)
		}
	})
	return daemon, dir
}

// another starts one more containerd, which gets its images from the same registry.
func (r *containerRig) another(t *testing.T) *containerRig {
	t.Helper()
	daemon, _ := newDaemon(t)
	return &containerRig{daemon: daemon, registry: r.registry, certs: r.certs}
}

// configure lets the agents of a cluster that was not started yet use containerd.
func (r *containerRig) configure(t *testing.T, c *cluster) {
	t.Helper()
	for _, m := range c.agents {
		r.configureOne(t, m, "")
	}
}

// configureOne lets an agent use containerd, with more lines in the block container.
func (r *containerRig) configureOne(t *testing.T, m *member, more string) {
	t.Helper()
	s := m.settings()
	s["agent"] += r.block(m, more)
	m.configure(t, s)
}

// block returns the block container of an agent's file, with more lines.
func (r *containerRig) block(m *member, more string) string {
	return fmt.Sprintf("\n  container {\n    socket = %q\n    certs_dir = %q\n    docker_config = %q\n"+
		"    images_disk_high = 0\n%s  }", r.daemon.Socket, r.certs, m.dockerConfig(), more)
}

func (r *containerRig) kill(t *testing.T) {
	t.Helper()
	if err := r.daemon.Kill(); err != nil {
		t.Fatal(err)
	}
}

func (r *containerRig) restart(t *testing.T) {
	t.Helper()
	if err := r.daemon.Restart(); err != nil {
		t.Fatal(err)
	}
}

// ctr runs containerd's own client, and returns the lines that it printed.
func (r *containerRig) ctr(t *testing.T, namespace string, args ...string) []string {
	t.Helper()
	out, err := output(exec.Command("ctr", append([]string{"--address", r.daemon.Socket, "--namespace", namespace},
		args...)...), patience)
	if err != nil {
		t.Fatalf("ctr %v: %v: %s", args, err, out)
	}
	return strings.FieldsFunc(out, func(r rune) bool { return r == '\n' })
}

// noLayers returns an error if containerd holds anything in a namespace but images.
func (r *containerRig) noLayers(t *testing.T, namespace string) error {
	t.Helper()
	for _, what := range []string{"leases", "containers", "tasks"} {
		if left := r.ctr(t, namespace, what, "list", "-q"); len(left) > 0 {
			return fmt.Errorf("%s: %v", what, left)
		}
	}
	for _, line := range r.ctr(t, namespace, "snapshots", "list")[1:] {
		if !strings.HasSuffix(strings.TrimSpace(line), "Committed") { // a layer of an image
			return fmt.Errorf("snapshot: %s", line)
		}
	}
	return nil
}

// holdsNothing returns an error if containerd holds anything in a namespace.
func (r *containerRig) holdsNothing(t *testing.T, namespace string) error {
	t.Helper()
	for _, what := range []string{"leases", "images", "snapshots", "content"} {
		if left := r.ctr(t, namespace, what, "list"); len(left) > 1 { // the first line has the names of columns
			return fmt.Errorf("%s:\n%s", what, strings.Join(left, "\n"))
		}
	}
	return nil
}

// weigh gives the instances of each agent the CPU weight that they have on a machine of their own, where their cgroup
// competes with single processes. Here all agents are in one cgroup, whose default weight is that of one process. On a
// busy machine, programs that can run then wait for seconds, although nothing was done to them.
func (c *cluster) weigh(t testing.TB) {
	t.Helper()
	for file, weight := range map[string]int{
		"/sys/fs/cgroup/cpu/" + c.name + "/cpu.shares": 1024,
		"/sys/fs/cgroup/" + c.name + "/cpu.weight":     100,
	} {
		if _, err := os.Stat(file); err != nil {
			continue // this machine has the other version of cgroups
		}
		if err := os.WriteFile(file, []byte(strconv.Itoa(weight*len(c.agents))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
