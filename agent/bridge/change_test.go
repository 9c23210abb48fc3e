package bridge

import (
	"net/netip"
	"testing"
)

// An agent restarts with another subnet while a container runs. Until the last container has ended, all share the
// earlier subnet, also those that start. Then the next one gets the new subnet.
func TestSubnetChanges(t *testing.T) {
	dir, before, after := t.TempDir(), netip.MustParsePrefix("10.88.0.0/22"), netip.MustParsePrefix("10.99.0.0/24")
	with := func(subnet netip.Prefix) func(*Config) { return func(c *Config) { c.Subnet = subnet } }
	first := open(t, dir, "n1", with(before))
	connect(t, first, "a", Mapping{8001, 80})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	n := open(t, dir, "n1", with(after))
	if err := n.Adopt("a"); err != nil {
		t.Fatal(err)
	}
	b := connect(t, n, "b", Mapping{8002, 80})
	if got := n.Subnet(); got != before || !before.Contains(b.Address) {
		t.Errorf("the subnet is %s and the address %s while a container of %s runs", got, b.Address, before)
	}
	if _, err := run(t.Context(), "iptables", "-t", "nat", "-F"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	for id, address := range map[string]string{"a": "192.0.2.1:8001", "b": "192.0.2.1:8002"} {
		if got := ask(address); got != id {
			t.Errorf("%s answers %q", address, got)
		}
	}
	for _, id := range []string{"a", "b"} {
		if err := n.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	c := connect(t, n, "c", Mapping{8001, 80})
	if got := n.Subnet(); got != after || !after.Contains(c.Address) {
		t.Errorf("the subnet is %s and the address %s, want %s", got, c.Address, after)
	}
	if got := ask("192.0.2.1:8001"); got != "c" {
		t.Errorf("the port answers %q", got)
	}
}
