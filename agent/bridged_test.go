package agent

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/agent/bridge"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// memNetworks are networks in memory.
type memNetworks struct {
	mu    sync.Mutex
	has   map[string][]bridge.Mapping
	held  map[string]bool
	lacks error             // why this machine can't have networks
	fails error             // of Add and Remove
	hangs bool              // Remove blocks until its context ends
	asked int               // calls of Remove
	lost  int               // rules of the firewall that somebody removed
	cut   map[string]string // what is missing of networks, by the instance's id
}

func (n *memNetworks) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// now returns a copy of what the networks are.
func (n *memNetworks) now() (c struct {
	has         map[string][]bridge.Mapping
	held        map[string]bool
	asked, lost int
},
) {
	n.set(func() { c.has, c.held, c.asked, c.lost = maps.Clone(n.has), maps.Clone(n.held), n.asked, n.lost })
	return c
}

func (n *memNetworks) Check() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lacks
}

func (n *memNetworks) Subnet() netip.Prefix { return netip.MustParsePrefix("172.24.8.0/22") }

func (n *memNetworks) Add(_ context.Context, id, hostname string, ports []bridge.Mapping) (bridge.Attachment, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fails != nil {
		return bridge.Attachment{}, n.fails
	}
	n.has[id], n.held[id] = ports, true
	delete(n.cut, id)
	return bridge.Attachment{Netns: "/netns/" + id, Address: n.Subnet().Addr().Next(),
		Hosts: "/files/" + hostname + "/hosts", Resolv: "/files/" + hostname + "/resolv.conf"}, nil
}

func (n *memNetworks) Adopt(id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, has := n.has[id]; has {
		n.held[id] = true
	}
	return nil
}

func (n *memNetworks) Mapped() (map[string][]bridge.Mapping, error) { return n.now().has, nil }

func (n *memNetworks) Remove(ctx context.Context, id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	if n.hangs {
		n.mu.Unlock()
		<-ctx.Done()
		n.mu.Lock()
		return ctx.Err()
	}
	if n.fails != nil {
		return n.fails
	}
	delete(n.has, id)
	delete(n.held, id)
	return nil
}

func (n *memNetworks) Sweep(_ context.Context, keep func(string) bool) (func(string) bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var err error
	for _, id := range slices.Collect(maps.Keys(n.has)) {
		if !keep(id) && n.fails != nil {
			err = n.fails
		} else if !keep(id) {
			delete(n.has, id)
			delete(n.held, id)
		}
	}
	left := maps.Clone(n.has)
	return func(id string) bool { _, has := left[id]; return has }, err
}

func (n *memNetworks) Repair(context.Context) (made int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	made, n.lost = n.lost, 0
	return made, nil
}

func (n *memNetworks) Lost(_ context.Context, ids []string, tell func(id, what string)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range ids {
		if what := n.cut[id]; what != "" {
			tell(id, what)
		}
	}
	return nil
}

func (n *memNetworks) Close() error {
	n.set(func() { clear(n.held) })
	return nil
}

// inBridge is inRuntime with networks for containers.
func inBridge(t *testing.T, f func(t *testing.T, b *bubble, n *memNetworks)) {
	n := &memNetworks{has: map[string][]bridge.Mapping{}, held: map[string]bool{}}
	inBubble(t, func(t *testing.T, b *bubble) {
		b.cfg.Images = webImage()
		b.cfg.Networks = bridge.NewKeeper(func() (bridge.Backend, error) { return n, nil })
		b.start()
		f(t, b, n)
	})
}

func bridgedGroup() model.GroupSpec {
	g := webGroup()
	g.Container.Network, g.Container.Args = model.NetworkBridge, []string{"${port.http}", "${port.admin}"}
	g.Ports = []model.PortSpec{{Name: "admin", Static: 9000}, {Name: "http", Static: 8080, To: 80}}
	return g
}

// A container with a network of its own sees its own address and ports, and those of the node under other names. The
// network goes with the program.
func TestBridgedContainer(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bubble, n *memNetworks) {
		id := b.run("web", bridgedGroup())
		b.pass(time.Second)
		b.want(id, model.ObservedReady, "")
		s := b.mem.started[0]
		if diff := cmp.Diff([]bridge.Mapping{{Host: 9000, Container: 9000}, {Host: 8080, Container: 80}},
			n.now().has[string(id)]); diff != "" {
			t.Errorf("ports: %s", diff)
		}
		host := bridge.HostName(string(id))
		if c := s.Container; c.NetNS != "/netns/"+string(id) || c.Hostname != host || c.Hosts != "/files/"+host+"/hosts" ||
			c.Resolv != "/files/"+host+"/resolv.conf" || strings.Join(s.Args, " ") != "80 9000" {
			t.Errorf("%v in %+v", s.Args, c)
		}
		for name, want := range map[string]string{"IP": "172.24.8.1", "PORT_HTTP": "80", "PORT_ADMIN": "9000",
			"HOST_IP": "127.0.0.1", "HOST_PORT_HTTP": "8080", "HOST_PORT_ADMIN": "9000"} {
			if got := s.Env["OUTSPAN_"+name]; got != want {
				t.Errorf("OUTSPAN_%s is %q, want %q", name, got, want)
			}
		}
		for want, number := range map[string]int{"http": 8080, "8080": 8080, "80": 8080, "9000": 9000} {
			if got, err := b.agent.portOf(id, want); got != number || err != nil {
				t.Errorf("port %s is %d, %v", want, got, err)
			}
		}
		b.mem.task(id).finish(memExit(1))
		b.pass(time.Millisecond)
		if len(n.now().has) > 0 {
			t.Error("its network outlives the program")
		}
		b.pass(time.Minute)
		b.want(id, model.ObservedReady, "")
		b.stop(id, nil)
		b.pass(3 * time.Second)
		b.want(id, model.ObservedStopped, "")
		if len(n.now().has) > 0 || b.mem.starts() != 2 {
			t.Errorf("networks %v are left after %d starts", n.now().has, b.mem.starts())
		}
	})
}

// Without a network the container is not started. A network that can't be removed is removed later.
func TestNetworkFails(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bubble, n *memNetworks) {
		refused := model.Refuse(bridge.CodeFailed, "no rules today")
		n.set(func() { n.fails = refused })
		id := b.run("web", bridgedGroup())
		b.pass(time.Second)
		b.want(id, model.ObservedBooting, "start_failed: no rules today")
		n.set(func() { n.fails = nil })
		b.pass(time.Minute)
		b.want(id, model.ObservedReady, "")
		n.set(func() { n.fails = refused })
		b.stop(id, nil)
		b.pass(2 * networkEvery)
		b.want(id, model.ObservedStopped, "")
		if len(n.now().has) != 1 || b.agent.Status().Problems["networks of containers"] != "no rules today" {
			t.Errorf("networks %v, problems %v", n.now().has, b.agent.Status().Problems)
		}
		n.set(func() { n.fails = nil })
		b.pass(2 * networkEvery)
		if len(n.now().has) > 0 || len(b.agent.Status().Problems) > 0 {
			t.Errorf("networks %v, problems %v", n.now().has, b.agent.Status().Problems)
		}
	})
}

// The end of a container is reported although its network can't be removed. Its ports stay reserved until it is, and a
// start that needs one waits, which does not count as a failure.
func TestPortsStayReserved(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bubble, n *memNetworks) {
		id := b.run("web", bridgedGroup())
		b.pass(time.Second)
		b.want(id, model.ObservedReady, "")
		n.set(func() { n.hangs, n.fails = true, model.Refuse(bridge.CodeFailed, "no rules today") })
		b.stop(id, nil)
		b.pass(8 * time.Second)
		b.want(id, model.ObservedStopped, "")
		next := webGroup()
		next.Ports = []model.PortSpec{{Name: "http", Static: 8080}}
		next.Restart.Attempts = 0
		after := b.run("next", next)
		b.pass(time.Minute)
		b.want(after, model.ObservedBooting,
			"port_taken: the network of instance "+string(id)+", which has ended, is not removed yet")
		n.set(func() { n.hangs, n.fails = false, nil })
		b.pass(2 * networkEvery)
		b.want(after, model.ObservedReady, "")
		if inst, _ := b.m.State().Instances.Get(after); inst.Status.Restarts != 0 {
			t.Errorf("%d restarts", inst.Status.Restarts)
		}
	})
}

// A start waits for networks that an earlier agent could not remove, but not for ever.
func TestPortsOfAnEarlierAgent(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bubble, n *memNetworks) {
		b.end()
		n.set(func() {
			n.has["gone"] = []bridge.Mapping{{Host: 8080, Container: 80}}
			n.fails = model.Refuse(bridge.CodeFailed, "no rules today")
		})
		b.cfg.Networks = bridge.NewKeeper(func() (bridge.Backend, error) { return n, nil })
		b.start()
		g := webGroup()
		g.Ports = []model.PortSpec{{Name: "http", Static: 8080}}
		g.Restart = model.RestartSpec{Attempts: 1, Interval: model.Hour, Delay: model.Second}
		id := b.run("web", g)
		b.pass(time.Minute)
		const taken = "port_taken: the network of instance gone, which has ended, is not removed yet"
		if i := b.want(id, model.ObservedBooting, taken); i.Status.Restarts != 0 {
			t.Errorf("%d restarts", i.Status.Restarts)
		}
		b.pass(2 * time.Minute)
		if i := b.want(id, model.ObservedBooting, taken); i.Status.Restarts != 1 {
			t.Errorf("%d restarts", i.Status.Restarts)
		}
		n.set(func() { n.fails = nil })
		b.pass(2 * networkEvery)
		b.want(id, model.ObservedReady, "")
		if len(n.now().has) > 0 {
			t.Errorf("networks %v are left", n.now().has)
		}
	})
}

// A container that ran waits for its network when it is started again. That does not count as a failure.
func TestNetworkFailsLater(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bubble, n *memNetworks) {
		id := b.run("web", bridgedGroup())
		b.pass(time.Second)
		b.want(id, model.ObservedReady, "")
		b.mem.task(id).finish(memExit(1))
		b.pass(time.Millisecond)
		n.set(func() { n.lacks = model.Refuse(bridge.CodeUnavailable, "no plugin") })
		b.pass(10 * time.Minute)
		b.want(id, model.ObservedUnready,
			"no_container_network: this node can't give a container a network of its own: no plugin (bridge_unavailable)")
		n.set(func() { n.lacks, n.fails = nil, model.Refuse(bridge.CodeFailed, "no rules today") })
		b.pass(10 * time.Minute)
		b.want(id, model.ObservedUnready, "bridge_failed: no rules today")
		n.set(func() { n.fails = nil })
		b.pass(3 * networkEvery)
		b.want(id, model.ObservedReady, "")
		if inst, _ := b.m.State().Instances.Get(id); inst.Status.Restarts != 1 {
			t.Errorf("%d restarts", inst.Status.Restarts)
		}
	})
}

// The end of a program without a network of its own does not wait for networks, also if an earlier agent started it.
func TestProgramsNeedNoNetwork(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bubble, n *memNetworks) {
		id := b.run("web", webGroup())
		b.pass(time.Second)
		b.end()
		b.cfg.Networks = bridge.NewKeeper(func() (bridge.Backend, error) { return n, nil })
		b.start()
		b.want(id, model.ObservedReady, "")
		b.stop(id, nil)
		b.pass(3 * time.Second)
		b.want(id, model.ObservedStopped, "")
		if n.now().asked > 0 {
			t.Error("the network of a program was removed")
		}
	})
}

// A container whose network somebody else has removed is not ready any more, and gets another network in place.
func TestLostNetwork(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bubble, n *memNetworks) {
		id := b.run("web", bridgedGroup())
		other := b.run("other", webGroup())
		b.pass(time.Second)
		b.want(id, model.ObservedReady, "")
		n.set(func() { n.cut = map[string]string{string(id): "its interface veth1 is gone"} })
		b.pass(networkEvery)
		b.want(id, model.ObservedReady, "") // one missing look may be a repair
		b.pass(networkEvery + time.Second)
		if i := b.want(id, model.ObservedUnready, "network_lost: its interface veth1 is gone"); i.Status.Restarts != 1 {
			t.Errorf("%d restarts", i.Status.Restarts)
		}
		b.pass(time.Minute)
		b.want(id, model.ObservedReady, "")
		b.want(other, model.ObservedReady, "")
		if len(n.now().has) != 1 || b.mem.starts() != 3 {
			t.Errorf("networks %v after %d starts", n.now().has, b.mem.starts())
		}
	})
}

// A restarted agent holds the ports of what runs, and removes the networks of what has ended.
func TestNetworksAreAdopted(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bubble, n *memNetworks) {
		runs := b.run("web", bridgedGroup())
		b.pass(time.Second)
		b.end()
		if len(n.now().held) > 0 {
			t.Errorf("held: %v", n.now().held)
		}
		n.set(func() { n.has["gone"] = nil })
		b.cfg.Networks = bridge.NewKeeper(func() (bridge.Backend, error) { return n, nil })
		b.start()
		b.want(runs, model.ObservedReady, "")
		if !n.now().held[string(runs)] || len(n.now().has) != 1 {
			t.Errorf("held: %v of %v", n.now().held, n.now().has)
		}
		n.set(func() { n.lost = 4 })
		b.pass(networkEvery + time.Second)
		if n.now().lost > 0 {
			t.Error("the rules are not made again")
		}
		b.end()
		b.mem.task(runs).finish(memExit(1))
		b.cfg.Networks = bridge.NewKeeper(func() (bridge.Backend, error) { return n, nil })
		b.start()
		b.pass(time.Minute)
		b.want(runs, model.ObservedReady, "")
		if b.mem.starts() != 2 || len(n.now().has) != 1 {
			t.Errorf("%d starts, networks %v", b.mem.starts(), n.now().has)
		}
	})
}

// The agent reports whether containers can have networks of their own, before the node is eligible, and each change.
func TestNetworksAreReported(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bubble, n *memNetworks) {
		row := func() *fsm.NodeRuntime {
			n, _ := b.m.State().Nodes.Get(b.node())
			return n.Self.Runtime
		}
		if x := row(); x.Bridge != "172.24.8.0/22" || x.NoBridge != "" {
			t.Errorf("reported %+v", x)
		}
		n.set(func() { n.lacks = model.Refuse(bridge.CodeUnavailable, "no plugin").WithHint("install it") })
		b.pass(networkEvery + runtimeCheckEvery)
		if x := row(); x.Bridge != "" || x.NoBridge != "no plugin; install it" {
			t.Errorf("reported %+v", x)
		}
		n.set(func() { n.lacks = nil })
		b.pass(networkEvery + runtimeCheckEvery)
		if x := row(); x.Bridge != "172.24.8.0/22" || x.NoBridge != "" {
			t.Errorf("reported %+v", x)
		}
	})
}
