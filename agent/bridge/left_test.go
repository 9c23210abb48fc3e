package bridge

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A failed plugin leaves no namespace and no address.
func TestFailedAddLeavesNothing(t *testing.T) {
	n := open(t, t.TempDir(), "n1")
	broken := t.TempDir()
	for _, name := range []string{"bridge", "host-local", "loopback"} {
		if err := os.Symlink(filepath.Join(n.cfg.Plugins, name), filepath.Join(broken, name)); err != nil {
			t.Fatal(err)
		}
	}
	script := "#!/bin/sh\n[ $CNI_COMMAND = DEL ] || { echo '{\"code\": 100, \"msg\": \"no rules today\"}'; exit 1; }\n"
	if err := os.WriteFile(filepath.Join(broken, "portmap"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	m, err := Open(Config{Node: "n1", Dir: n.cfg.Dir, Address: n.cfg.Address, Plugins: broken})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Add(t.Context(), "a", "a", []Mapping{{8001, 80}})
	if codeOf(err) != CodeFailed || !strings.Contains(err.Error(), "no rules today") {
		t.Errorf("error %v", err)
	}
	checkNothing(t, n)
}

// After a reload of the firewall no rule is left. Repair makes them again.
func TestRepairAfterReload(t *testing.T) {
	n := open(t, t.TempDir(), "n1")
	connect(t, n, "a", Mapping{8001, 80})
	connect(t, n, "b")
	if mended, err := n.Repair(t.Context()); err != nil || mended != 0 {
		t.Errorf("an intact firewall was mended: %d %v", mended, err)
	}
	for _, args := range [][]string{{"-t", "nat", "-F"}, {"-t", "nat", "-X"}, {"-F"},
		{"-t", "mangle", "-F"}, {"-t", "raw", "-F"}} {
		if _, err := run(t.Context(), "iptables", args...); err != nil {
			t.Fatal(err)
		}
	}
	if got := ask("192.0.2.1:8001"); got != "" {
		t.Fatalf("the port answers %q without rules", got)
	}
	if mended, err := n.Repair(t.Context()); err != nil || mended != 7 {
		t.Errorf("%d were mended, not the six rules of the bridge and one container: %v", mended, err)
	}
	if got := ask("192.0.2.1:8001"); got != "a" {
		t.Errorf("the port answers %q after the repair", got)
	}
}

// An agent that restarts finds the containers, and removes those that ended meanwhile.
func TestSweepAfterRestart(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, "n1")
	connect(t, first, "a", Mapping{8001, 80})
	connect(t, first, "b", Mapping{8002, 80})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, dir, "n1")
	if second.Subnet() != first.Subnet() {
		t.Errorf("the subnet was %v and is %v", first.Subnet(), second.Subnet())
	}
	if err := second.Adopt("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Listen("tcp4", "192.0.2.1:8001"); err == nil {
		t.Error("another program can bind the port of an adopted container")
	}
	if _, err := second.Sweep(t.Context(), func(id string) bool { return id == "a" }); err != nil {
		t.Fatal(err)
	}
	if got := ask("192.0.2.1:8001") + ask("192.0.2.1:8002"); got != "a" {
		t.Errorf("the ports answer %q", got)
	}
	if ids, err := second.attached(); err != nil || !slices.Equal(ids, []string{"a"}) {
		t.Errorf("attached: %v %v", ids, err)
	}
}

// After a reboot the namespaces are gone, and their files, the addresses and the results of plugins are left.
func TestSweepAfterReboot(t *testing.T) {
	n := open(t, t.TempDir(), "n1")
	if _, err := n.Add(t.Context(), "a", "a", []Mapping{{8001, 80}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(n.netns("a"), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Sweep(t.Context(), func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	checkNothing(t, n)
}

// With the last container the bridge and its rules go. The next container gets them again, in another subnet too.
func TestLastContainer(t *testing.T) {
	n := open(t, t.TempDir(), "n1")
	connect(t, n, "a", Mapping{8001, 80})
	connect(t, n, "b", Mapping{8002, 80})
	for _, id := range []string{"a", "b"} {
		if err := n.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	checkNothing(t, n)
	other := netip.MustParsePrefix("10.99.0.0/28")
	m := open(t, n.cfg.Dir, "n1", func(c *Config) { c.Subnet = other })
	if a := connect(t, m, "c", Mapping{8001, 80}); !other.Contains(a.Address) || ask("192.0.2.1:8001") != "c" {
		t.Errorf("the new address is %v, the port answers %q", a.Address, ask("192.0.2.1:8001"))
	}
	if _, err := n.Sweep(t.Context(), func(string) bool { return false }); err != nil { // of the earlier subnet
		t.Fatal(err)
	}
	checkNothing(t, n)
}

// An agent that is killed in the middle of Add leaves what Sweep finds.
func TestKilledInAdd(t *testing.T) {
	for _, lost := range []string{"ports", "ports net", "ports net lo"} {
		n := open(t, t.TempDir(), "n1")
		if _, err := n.Add(t.Context(), "a", "a", []Mapping{{8001, 80}}); err != nil {
			t.Fatal(err)
		}
		for _, list := range strings.Fields(lost) {
			if err := os.Remove(filepath.Join(n.cfg.Dir, "results", "results", n.listName(list)+"-a-eth0")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := n.Sweep(t.Context(), func(string) bool { return false }); err != nil {
			t.Errorf("without the results of %s: %v", lost, err)
		}
		checkNothing(t, n)
	}
}
