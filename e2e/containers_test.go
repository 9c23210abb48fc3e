package e2e

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/internal/testbed/ctrd"
)

// siteScript is what the image of TestContainers runs. A web server answers while the program runs. A shell has its
// background processes ignore SIGQUIT.
const siteScript = `echo "site begins as $(id -u) at $(pwd) with $GREETING"
trap 'echo "asked by QUIT"; kill $!; exit 0' QUIT
trap 'echo "asked by TERM"; kill $!; exit 0' TERM
webserver -p $OUTSPAN_IP:$OUTSPAN_PORT_HTTP -h /www &
[ -d /data ] && echo kept >> /data/file
wait
`

// webServer builds the program testdata/webserver once for all tests, and returns it.
var webServer = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", runName())
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "webserver")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./testdata/webserver")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := output(cmd, 5*time.Minute); err != nil {
		return nil, fmt.Errorf("build the web server: %w\n%s", err, out)
	}
	return os.ReadFile(path)
})

// siteImage makes an image with busybox, and a web server whose pages say text. It runs as the user app, and is stopped
// by SIGQUIT.
func siteImage(t *testing.T, text string, more ...ctrd.File) ctrd.Image {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	server, err := webServer()
	if err != nil {
		t.Fatal(err)
	}
	files := []ctrd.File{{Name: "bin/", Mode: 0o755}, {Name: "bin/busybox", Mode: 0o755, Body: body},
		{Name: "bin/webserver", Mode: 0o755, Body: server},
		{Name: "etc/", Mode: 0o755}, {Name: "etc/passwd", Mode: 0o644, Body: []byte("app:x:1001:1002:app:/www:/bin/sh\n")},
		{Name: "www/", Mode: 0o755}, {Name: "www/index.html", Mode: 0o644, Body: []byte(text)},
		{Name: "site", Mode: 0o755, Body: []byte("#!/bin/sh\n" + siteScript)}}
	files = append(files, more...)
	for _, name := range []string{"sh", "sleep", "id", "pwd", "echo", "cat", "dd", "seq"} {
		files = append(files, ctrd.File{Name: "bin/" + name, Mode: 0o777, Link: "busybox"})
	}
	i, err := ctrd.NewImage(files, ctrd.Config{Entrypoint: []string{"/site"}, Env: []string{"PATH=/bin", "GREETING=hello"},
		User: "app", WorkingDir: "/www", StopSignal: "SIGQUIT"})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// awaitRuntime waits until every agent has reported that the container runtime answers, or that it does not.
func (c *cluster) awaitRuntime(t *testing.T, up bool) {
	t.Helper()
	waitFor(t, fmt.Sprintf("the runtime of every node to be up: %v", up), patience, func() error {
		var l struct {
			Items []struct {
				Name    string
				Runtime *struct{ Version, Down string } `json:"container_runtime"`
			}
		}
		if err := c.get("/v1/nodes", &l); err != nil {
			return err
		}
		for _, n := range l.Items {
			if n.Runtime == nil || up != (n.Runtime.Down == "") || up != strings.HasPrefix(n.Runtime.Version, "containerd ") {
				return fmt.Errorf("%s reports %+v", n.Name, n.Runtime)
			}
		}
		if len(l.Items) != len(c.agents) {
			return fmt.Errorf("%d nodes", len(l.Items))
		}
		return nil
	})
}

func siteJob(name string, count int, more string) string {
	return fmt.Sprintf(`job %q {
  group "site" {
    count = %d
    container { image = "%s/site:1" }
    env = { COLOR = "red" }
    resources { memory = "48MiB" }
    port "http" {}
    check "alive" {
      type     = "http"
      port     = "http"
      path     = "/index.html"
      interval = "250ms"
    }
    check "inside" {
      type     = "exec"
      exec     = ["sh", "-c", "[ $COLOR = red ] && [ -e /site ] && cat $OUTSPAN_PEERS"]
      interval = "500ms"
      timeout  = "20s"
    }
    stop { drain_delay = "0s" }
%s
  }
}
`, name, count, registryName, more)
}

// pids returns the processes of each instance.
func pids(all map[string][]procs.Row) map[string][]int {
	found := map[string][]int{}
	for id, rows := range all {
		own := map[int]bool{}
		for _, p := range rows {
			own[p.PID] = strings.HasSuffix(p.Args(), "/site\x00") // not its checks
		}
		for _, p := range rows {
			if own[p.PID] && !own[p.Parent] { // not a child that answers one request
				found[id] = append(found[id], p.PID)
			}
		}
		slices.Sort(found[id])
	}
	return found
}

func get(t *testing.T, address string) string {
	t.Helper()
	response, err := http.Get("http://" + address + "/index.html")
	if err != nil {
		t.Error(err)
		return ""
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

// Containers of an image from a registry run on two agents that share one containerd. The agents start while containerd
// does not run. The tag moves on after the job was submitted. Then containerd and an agent are killed, a node is
// drained, and everything is stopped.
func TestContainers(t *testing.T) {
	long(t)
	t.Parallel()
	require(t, "containerd", "ctr", "runc", "busybox")
	r := newContainerRig(t)
	r.ctr(t, "neighbour", "leases", "create", "--id", "instance-other")
	r.kill(t)
	c := newCluster(t, options{servers: 1, agents: 2})
	r.configure(t, c)
	for _, m := range c.members() {
		m.start(t)
	}
	c.waitEligible(t, c.agents...)
	c.awaitRuntime(t, false)
	c.run(t, job{name: "program", count: 2})
	r.registry.Push("site:1", siteImage(t, "one"))
	site := c.writeText(t, "site.hcl", siteJob("site", 2, "    budget { min_ready = 2 }"))
	c.cli(t, "job", "run", site, "--detach").want(t, 5, "nobody can ask for the digest")
	r.restart(t)
	c.awaitRuntime(t, true)

	c.must(t, "job", "run", site, "--detach")
	c.waitReady(t, "site", 2)
	r.registry.Push("site:2", siteImage(t, "one")) // the digest stays in the registry
	r.registry.Push("site:1", siteImage(t, "two"))
	c.must(t, "job", "scale", "site", "3", "--detach")
	c.waitReady(t, "site", 3)
	c.must(t, "job", "run", c.writeText(t, "data.hcl", siteJob("data", 1, `    volume "data" {
      kind = "local"
      path = "/data"
    }
    constraint {
      attribute = "node.name"
      value     = "n2"
    }`)), "--detach")
	c.waitReady(t, "data", 1)
	pages := map[string]string{"site": "one", "data": "two"} // the job data was submitted after the tag had moved
	for _, i := range append(c.living(t, "site"), c.living(t, "data")...) {
		address := net.JoinHostPort(c.member(i.Node).address, fmt.Sprint(i.Ports["http"]))
		if text := get(t, address); text != pages[i.Job] {
			t.Errorf("%s on %s answers %q", i.ID, i.Node, text)
		}
		if out := c.must(t, "logs", i.ID); !strings.Contains(out, "site begins as 1001 at /www with hello") {
			t.Errorf("logs of %s: %q", i.ID, out)
		}
	}
	c.checkData(t, 1)

	c.killRuntimeAndAgent(t, r)
	out := c.must(t, "image", "prune", "--node", "n2")
	if !strings.Contains(out, "0 images of node n2 deleted, 0B freed") {
		t.Errorf("while all images are in use: %s", out)
	}

	old := c.living(t, "site")
	stop := c.sample("site", "default")
	c.must(t, "node", "drain", "n1")
	if seen := stop(); seen.ready < 2 || seen.alive < 2 || seen.samples == 0 {
		t.Errorf("during the drain: %v\n%s", seen, seen.atLeast)
	}
	c.waitReady(t, "site", 3)
	for _, i := range old {
		if i.Node == "n1" {
			if out := c.must(t, "logs", i.ID); !strings.Contains(out, "asked by QUIT") || strings.Contains(out, "TERM") {
				t.Errorf("the stop of %s: %q", i.ID, out)
			}
		}
	}
	c.must(t, "instance", "restart", c.living(t, "data")[0].ID)
	waitFor(t, "the restart", patience, func() error {
		if i := c.living(t, "data")[0]; i.Restarts != 1 || !i.Ready {
			return fmt.Errorf("%+v", i)
		}
		return nil
	})
	c.checkData(t, 2)
	c.reset(t)
	c.nothingOfContainers(t, r)
	if got := r.ctr(t, "neighbour", "leases", "list", "-q"); !slices.Equal(got, []string{"instance-other"}) {
		t.Errorf("the neighbour has the leases %v", got)
	}
	c.pruneAll(t, r)
}

// pruneAll deletes the images of all nodes, which nothing needs any more.
func (c *cluster) pruneAll(t *testing.T, r *containerRig) {
	t.Helper()
	out := c.must(t, "image", "ls")
	if strings.Count(out, registryName+"/site") != 3 || strings.Count(out, "present") != 3 {
		t.Errorf("the images are\n%s", out)
	}
	for _, n := range c.nodes(t) {
		dry := c.must(t, "image", "prune", "--node", n.Name, "--dry-run")
		out := c.must(t, "image", "prune", "--node", n.Name)
		want := map[string]string{"n1": "1 image of", "n2": "2 images of"}[n.Name]
		if !strings.Contains(dry, want) || !strings.Contains(out, want) {
			t.Errorf("pruned %s: %s\nbefore: %s", n.Name, out, dry)
		}
		for _, what := range []string{"images", "snapshots", "content"} {
			if left := r.ctr(t, "outspan-"+n.ID, what, "list"); len(left) > 1 { // the first line has the names of columns
				t.Errorf("%s of %s are left: %v", what, n.Name, left)
			}
		}
	}
}

// checkData checks that the volume of the job data belongs to the user of the image, and has a line of each start.
func (c *cluster) checkData(t *testing.T, starts int) {
	t.Helper()
	dir := c.member("n2").inVolumes("data", "site", "0", "data")
	body, err := os.ReadFile(filepath.Join(dir, "file"))
	if err != nil || strings.Count(string(body), "kept\n") != starts {
		t.Errorf("the volume has %q, %v", body, err)
	}
	out, err := output(exec.Command("stat", "-c", "%u:%g", dir, filepath.Join(dir, "file")), patience)
	if err != nil || out != "1001:1002\n1001:1002\n" {
		t.Errorf("the volume belongs to %q, %v", out, err)
	}
}

// killRuntimeAndAgent kills containerd and an agent, and starts both again. The containers and their checks go on
// meanwhile, and the agent adopts its own.
func (c *cluster) killRuntimeAndAgent(t *testing.T, r *containerRig) {
	t.Helper()
	before := pids(c.instances())
	r.kill(t)
	c.awaitRuntime(t, false)
	c.agents[0].Kill()
	c.agents[0].start(t)
	c.waitEligible(t, c.agents...)
	ready := func(when string) {
		t.Helper()
		for range 8 { // the checks run several times
			for _, job := range []string{"site", "data"} {
				for _, i := range c.living(t, job) {
					if !i.Ready || i.Restarts != 0 {
						t.Errorf("%s: %+v", when, i)
					}
				}
			}
			time.Sleep(250 * time.Millisecond)
		}
		if now := pids(c.instances()); !maps.EqualFunc(before, now, slices.Equal) {
			t.Errorf("%s: the containers are %v, and were %v", when, now, before)
		}
	}
	c.waitReady(t, "site", 3)
	ready("without containerd")
	r.restart(t)
	c.awaitRuntime(t, true)
	ready("with containerd again")
}

func namespaceOf(n nodeView) string { return "outspan-" + n.ID }

// nothingOfContainers waits until no layer, lease, task, mount or cgroup of the cluster's instances is left.
func (c *cluster) nothingOfContainers(t *testing.T, r *containerRig) {
	t.Helper()
	for _, n := range c.nodes(t) {
		namespace := namespaceOf(n)
		waitFor(t, "the end of all layers of "+n.Name, patience, func() error { return r.noLayers(t, namespace) })
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), c.dir) || strings.Contains(string(mounts), r.daemon.Socket[:len(
		r.daemon.Socket)-len("/s")]+"/") {
		t.Errorf("a mount is left, %v:\n%s", err, mounts)
	}
	waitFor(t, "the end of all cgroups of instances", patience, func() error {
		for _, pattern := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
			if left, _ := filepath.Glob(pattern + c.name + "/*/*/cgroup.procs"); len(left) > 0 {
				return fmt.Errorf("%v", left)
			}
		}
		return nil
	})
}
