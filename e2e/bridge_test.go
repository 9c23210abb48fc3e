package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

func bridgeJob(name string, count int, more string) string {
	return fmt.Sprintf(`job %q {
  group "site" {
    count = %d
    container {
      image   = "%s/site:1"
      network = "bridge"
    }
    env = { COLOR = "red" }
    resources { memory = "48MiB" }
    port "http" { to = 80 }
    check "alive" {
      type     = "http"
      port     = "http"
      path     = "/index.html"
      interval = "250ms"
    }
    check "inside" {
      type     = "exec"
      exec     = ["sh", "-c", "[ $OUTSPAN_PORT_HTTP = 80 ] && cat $OUTSPAN_PEERS"]
      interval = "500ms"
      timeout  = "20s"
    }
%s
  }
}
`, name, count, registryName, more)
}

func onNode(name string) string {
	return fmt.Sprintf("    constraint {\n      attribute = \"node.name\"\n      value     = %q\n    }", name)
}

// visitor asks the exposed ports of agents for a page, from a network namespace of its own.
type visitor struct {
	client *http.Client
	quit   chan struct{}
	done   sync.WaitGroup

	sent   int // sent and failed are read after the end
	failed []string
}

func newVisitor(space string) *visitor {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialIn(ctx, space, network, address)
	}
	return &visitor{quit: make(chan struct{}), client: &http.Client{Timeout: 10 * time.Second,
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

func (v *visitor) ask(address string) error {
	response, err := v.client.Get("http://" + address + "/index.html")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && string(text) != "one" {
		err = fmt.Errorf("%s: %q", response.Status, text)
	}
	return err
}

// begin asks each address in turn, every 20 ms, until end.
func (v *visitor) begin(addresses ...string) {
	v.done.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ; ; v.sent++ {
			select {
			case <-v.quit:
				return
			case <-tick.C:
			}
			if err := v.ask(addresses[v.sent%len(addresses)]); err != nil {
				v.failed = append(v.failed, fmt.Sprintf("%s: %v", time.Now().Format("15:04:05.000"), err))
			}
		}
	})
}

func (v *visitor) end() {
	close(v.quit)
	v.done.Wait()
}

// Containers with networks of their own are behind an exposed port, which a machine outside asks all the time while
// their node is drained. Another machine reloads its firewall, and loses an agent and a shim. A third one has no CNI
// plugins. In the end nothing of the networks is left.
func TestContainerBridge(t *testing.T) {
	long(t)
	require(t, "containerd", "ctr", "runc", "busybox", "ip", "iptables", "nsenter", "/usr/lib/cni/portmap")
	c := newCluster(t, options{servers: 1, agents: 3, namespaces: true})
	hub := "/run/netns/" + c.name + "-hub"
	c.network.ip(t, "-n", c.name+"-hub", "addr", "add", "10.83.7.250/24", "dev", "br0")
	listener, err := listenIn(hub, "10.83.7.250:0")
	if err != nil {
		t.Fatal(err)
	}
	r := newContainerRig(t, listener)
	r.configure(t, c)
	n3 := c.member("n3")
	r.configureOne(t, n3, "    cni_plugins = \"/nowhere\"\n")
	for _, m := range c.members() {
		m.start(t)
	}
	c.waitEligible(t, c.agents...)
	c.awaitRuntime(t, true)
	r.registry.Push("site:1", siteImage(t, "one"))
	c.must(t, "job", "run", c.writeText(t, "site.hcl", bridgeJob("site", 2, `    service "site" {
      port   = "http"
      expose = 8080
    }
    stop {
      drain_delay = "1s"
      grace       = "2s"
    }`)), "--detach")
	c.must(t, "job", "run", c.writeText(t, "plain.hcl", siteJob("plain", 1, onNode("n3"))), "--detach")
	c.waitReady(t, "site", 2)
	c.waitReady(t, "plain", 1) // uses the network of n3
	c.checkBridged(t)
	c.checkWithoutPlugins(t)
	c.must(t, "job", "stop", "plain", "--purge")

	v := newVisitor(c.network.join(t, "guest", "10.83.7.200"))
	exposed := func(m *member) string { return net.JoinHostPort(m.address, "8080") }
	for _, m := range c.agents {
		waitFor(t, "the exposed port of "+m.Name, patience, func() error { return v.ask(exposed(m)) })
	}
	v.begin(exposed(c.member("n1")), exposed(c.member("n2")), exposed(n3))
	c.must(t, "node", "drain", "n1")
	v.end()
	if v.sent < 50 || len(v.failed) > 0 {
		t.Errorf("%d of %d requests failed: %v", len(v.failed), v.sent, v.failed)
	}
	c.nothingOfBridge(t, c.member("n1"))

	n2 := c.member("n2")
	for _, args := range [][]string{{"-F"}, {"-t", "nat", "-F"}, {"-t", "nat", "-X"}} {
		c.network.iptables(t, n2, args...)
	}
	direct := net.JoinHostPort(n2.address, fmt.Sprint(c.living(t, "site")[0].Ports["http"]))
	if err := v.ask(direct); err == nil {
		rules, err := output(exec.Command("nsenter", "--net="+c.network.space(n2), "--", "iptables", "-w", "-t", "nat", "-S"),
			patience)
		t.Errorf("the page is there without rules of the firewall: %v\n%s", err, rules)
	}
	waitFor(t, "the page after a reload of the firewall", patience, func() error { return v.ask(direct) })
	c.waitReady(t, "site", 2)

	lost := c.living(t, "site")[0].ID
	n2.Kill()
	for pid, p := range procs.Descendants() {
		if strings.HasSuffix(p.Args(), "shim\x00"+filepath.Join(n2.data(), "driver", "state", lost)+"\x00") {
			procs.Kill(pid)
		}
	}
	n2.start(t)
	waitFor(t, "the restart of what lost its shim", patience, func() error {
		if i := c.instance(t, lost); i.Restarts == 0 || !i.Ready {
			return fmt.Errorf("%+v", i)
		}
		return nil
	})
	if got := c.interfaces(t, n2, "veth"); got != 3 { // one is its own
		t.Errorf("n2 has %d veth interfaces, want 3", got)
	}
	c.reset(t)
	c.nothingOfBridge(t, c.agents...)
}

// checkBridged checks what containers with networks of their own see, and how people reach them.
func (c *cluster) checkBridged(t *testing.T) {
	t.Helper()
	for _, i := range c.living(t, "site") {
		if i.Node == "n3" {
			t.Errorf("%s is on n3, which has no plugins", i.ID)
		}
		out := c.must(t, "instance", "exec", i.ID, "--", "sh", "-c",
			"echo $OUTSPAN_HOST_IP:$OUTSPAN_HOST_PORT_HTTP $OUTSPAN_IP; cat /etc/hosts /etc/resolv.conf")
		first, files, _ := strings.Cut(out, "\n")
		node, own, _ := strings.Cut(first, " ")
		if want := fmt.Sprintf("%s:%d", c.member(i.Node).address, i.Ports["http"]); node != want {
			t.Errorf("%s sees the node's address %s, want %s", i.ID, node, want)
		}
		if !strings.HasPrefix(own, "172.") || !strings.Contains(files, "\n"+own+"\t") ||
			strings.Contains(files, "nameserver 127.") {
			t.Errorf("%s has the address %s and the files\n%s", i.ID, own, files)
		}
		if ln, err := listenIn(c.network.space(c.member(i.Node)), node); err == nil {
			_ = ln.Close()
			t.Errorf("another program can listen on %s", node)
		}
	}
	if out := c.must(t, "node", "status", "n1"); !strings.Contains(out, "IPv4 only") {
		t.Errorf("node status: %s", out)
	}
}

// checkWithoutPlugins checks that a container that needs a network is not placed on n3, and that the reason is shown.
func (c *cluster) checkWithoutPlugins(t *testing.T) {
	t.Helper()
	const lacks = "no CNI plugin bridge in /nowhere"
	if out := c.must(t, "node", "status", "n3"); !strings.Contains(out, lacks) {
		t.Errorf("node status: %s", out)
	}
	c.cli(t, "job", "run", c.writeText(t, "nowhere.hcl", bridgeJob("nowhere", 1, onNode("n3"))), "--detach").
		want(t, 21, lacks)
	waitFor(t, "the reason why nothing is placed", patience, func() error {
		if out := c.cli(t, "why", "nowhere/site").out; !strings.Contains(out, "no_container_network") ||
			!strings.Contains(out, lacks) {
			return fmt.Errorf("why says: %s", out)
		}
		return nil
	})
	c.must(t, "job", "stop", "nowhere", "--purge")
}

// interfaces returns how many interfaces of a kind an agent's namespace has.
func (c *cluster) interfaces(t *testing.T, m *member, kind string) int {
	t.Helper()
	out, err := output(exec.Command("ip", "-n", c.network.name(m), "-o", "link", "show", "type", kind), patience)
	if err != nil {
		t.Fatalf("list the interfaces of %s: %v: %s", m.Name, err, out)
	}
	return strings.Count(out, "\n")
}

// nothingOfBridge waits until agents have no interface, rule, lease, namespace or file of a container's network.
func (c *cluster) nothingOfBridge(t *testing.T, agents ...*member) {
	t.Helper()
	for _, m := range agents {
		waitFor(t, "the end of all networks on "+m.Name, patience, func() error {
			// Each agent has one of its own, eth0.
			if veth, bridges := c.interfaces(t, m, "veth"), c.interfaces(t, m, "bridge"); veth > 1 || bridges > 0 {
				return fmt.Errorf("%d veth interfaces, %d bridges", veth, bridges)
			}
			for _, table := range []string{"nat", "filter"} {
				rules, err := output(exec.Command("nsenter", "--net="+c.network.space(m), "--", "iptables", "-w", "-t", table,
					"-S"), patience)
				if err != nil || strings.Contains(rules, "outspan") || strings.Contains(rules, "CNI-DN-") {
					return fmt.Errorf("rules, %w: %s", err, rules)
				}
			}
			for _, pattern := range []string{"netns/*", "files/*", "results/results/*", "leases/*/172.*"} {
				if left, _ := filepath.Glob(filepath.Join(m.data(), "network", pattern)); len(left) > 0 {
					return fmt.Errorf("%v", left)
				}
			}
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			if err != nil || strings.Contains(string(mounts), m.data()+"/") {
				return fmt.Errorf("mounts, %w:\n%s", err, mounts)
			}
			return nil
		})
	}
}
