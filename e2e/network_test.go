package e2e

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// network has a network namespace for each member. A bridge in another namespace connects them. The namespace of the
// tests gets no address, no route and no rule.
type network struct {
	c      *cluster
	spaces []string
}

func newNetwork(t testing.TB, c *cluster) *network {
	t.Helper()
	require(t, "ip", "iptables", "nsenter")
	n := &network{c: c}
	hub := c.name + "-hub"
	n.add(t, hub)
	n.ip(t, "-n", hub, "link", "add", "br0", "type", "bridge")
	n.ip(t, "-n", hub, "link", "set", "br0", "up")
	for _, m := range c.members() {
		n.join(t, m.Name, m.address)
	}
	return n
}

// join makes a namespace, connects it to the bridge, and returns its path.
func (n *network) join(t testing.TB, name, address string) string {
	t.Helper()
	hub, space := n.c.name+"-hub", n.c.name+"-"+name
	n.add(t, space)
	n.ip(t, "-n", hub, "link", "add", "p-"+name, "type", "veth", "peer", "name", "eth0", "netns", space)
	n.ip(t, "-n", hub, "link", "set", "p-"+name, "master", "br0", "up")
	n.ip(t, "-n", space, "link", "set", "lo", "up")
	n.ip(t, "-n", space, "addr", "add", address+"/24", "dev", "eth0")
	n.ip(t, "-n", space, "link", "set", "eth0", "up")
	return "/run/netns/" + space
}

func (n *network) name(m *member) string  { return n.c.name + "-" + m.Name }
func (n *network) space(m *member) string { return "/run/netns/" + n.name(m) }

func (n *network) add(t testing.TB, space string) {
	t.Helper()
	n.ip(t, "netns", "add", space)
	n.spaces = append(n.spaces, space)
}

func (n *network) ip(t testing.TB, args ...string) {
	t.Helper()
	if out, err := output(exec.Command("ip", args...), 10*time.Second); err != nil {
		t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// drop drops every packet from one member to another, at the receiver.
func (n *network) drop(t testing.TB, from, to *member) {
	t.Helper()
	n.iptables(t, to, "-A", "INPUT", "-s", from.address, "-j", "DROP")
}

// cut drops every packet between a member of one list and a member of the other list, in both directions.
func (n *network) cut(t testing.TB, ones, others []*member) {
	t.Helper()
	for _, a := range ones {
		for _, b := range others {
			if a != b {
				n.drop(t, a, b)
				n.drop(t, b, a)
			}
		}
	}
}

func (n *network) heal(t testing.TB) {
	t.Helper()
	for _, m := range n.c.members() {
		n.iptables(t, m, "-F", "INPUT")
	}
}

func (n *network) iptables(t testing.TB, at *member, args ...string) {
	t.Helper()
	cmd := exec.Command("nsenter", append([]string{"--net=" + n.space(at), "--", "iptables", "-w"}, args...)...)
	if out, err := output(cmd, 10*time.Second); err != nil {
		t.Fatalf("iptables %s at %s: %v\n%s", strings.Join(args, " "), at.Name, err, out)
	}
}

func (n *network) remove(t testing.TB) {
	for _, space := range n.spaces {
		if out, err := output(exec.Command("ip", "netns", "del", space), 10*time.Second); err != nil {
			t.Errorf("remove namespace %s: %v\n%s", space, err, out)
		}
	}
}

// without returns a copy of the first list that lacks the other arguments.
func without(all []*member, some ...*member) []*member {
	return slices.DeleteFunc(slices.Clone(all), func(m *member) bool { return slices.Contains(some, m) })
}

func names(members []*member) []string {
	var list []string
	for _, m := range members {
		list = append(list, m.Name)
	}
	return list
}
