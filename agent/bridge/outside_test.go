package bridge

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// asker makes this binary print what the server at the address in the variable answers.
const asker = "OUTSPAN_TEST_ASK"

// askFrom is ask from inside a network namespace.
func askFrom(t *testing.T, netns, address string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "nsenter", "--net="+netns, self)
	cmd.Env = append(os.Environ(), asker+"="+address)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ask %s: %v", address, err)
	}
	return string(out)
}

// ip runs ip, in a network namespace unless netns is "".
func ip(t *testing.T, netns string, args ...string) {
	t.Helper()
	do(t, netns, append([]string{"ip"}, args...)...)
}

func do(t *testing.T, netns string, words ...string) {
	t.Helper()
	if netns != "" {
		words = append([]string{"nsenter", "--net=" + netns}, words...)
	}
	if _, err := run(t.Context(), words[0], words[1:]...); err != nil {
		t.Fatal(err)
	}
}

// Another machine with a route to the containers reaches their mapped ports, and nothing else. So do the containers of
// another agent. Containers reach the outside.
func TestOnlyMappedPortsAreOpen(t *testing.T) {
	n := open(t, t.TempDir(), "n1")
	a := connect(t, n, "a", Mapping{8001, 80})
	outside := filepath.Join(t.TempDir(), "outside")
	if err := newNetns(outside); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeNetns(outside); err != nil {
			t.Error(err)
		}
	})
	ip(t, "", "link", "add", "out0", "type", "veth", "peer", "name", "in0", "netns", outside)
	t.Cleanup(func() { _, _ = run(t.Context(), "ip", "link", "delete", "out0") })
	ip(t, "", "address", "add", "198.51.100.1/24", "dev", "out0")
	ip(t, "", "link", "set", "out0", "up")
	ip(t, outside, "address", "add", "198.51.100.2/24", "dev", "in0")
	ip(t, outside, "link", "set", "in0", "up")
	ip(t, outside, "route", "add", "default", "via", "198.51.100.1")
	other := open(t, t.TempDir(), "n2")
	b := connect(t, other, "b")
	for _, from := range []string{outside, b.Netns} {
		if got := askFrom(t, from, a.Address.String()+":80"); got != "" {
			t.Errorf("the container's own port answers %q", got)
		}
		if got := askFrom(t, from, "192.0.2.1:8001"); got != "a" {
			t.Errorf("the mapped port answers %q", got)
		}
	}
	c := connect(t, n, "c")
	if got := askFrom(t, c.Netns, a.Address.String()+":80"); got != "a" {
		t.Errorf("a container beside it gets %q", got)
	}
	ln := answer(t, "198.51.100.1:8002", "outside")
	defer ln.Close()
	if got := askFrom(t, a.Netns, "198.51.100.1:8002"); got != "outside" {
		t.Errorf("from a container, the outside answers %q", got)
	}
}

// The machine's own loopback addresses are not for containers, whatever their routes. Here their kernel takes the
// answers too, as a raw socket does.
func TestLoopbackIsClosed(t *testing.T) {
	n := open(t, t.TempDir(), "n1")
	a := connect(t, n, "a", Mapping{8001, 80})
	ln := answer(t, "127.0.0.8:8003", "loopback")
	defer ln.Close()
	if got := ask("127.0.0.8:8003"); got != "loopback" {
		t.Fatalf("the machine itself gets %q", got)
	}
	ip(t, a.Netns, "route", "del", "local", "127.0.0.0/8", "dev", "lo", "table", "local")
	ip(t, a.Netns, "route", "add", "127.0.0.8/32", "via", a.Gateway.String())
	do(t, a.Netns, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/eth0/route_localnet")
	if got := askFrom(t, a.Netns, "127.0.0.8:8003"); got != "" {
		t.Errorf("a container gets %q", got)
	}
}

// answer answers connections to address with word.
func answer(t *testing.T, address, word string) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for c, err := ln.Accept(); err == nil; c, err = ln.Accept() {
			_, _ = c.Write([]byte(word))
			_ = c.Close()
		}
	}()
	return ln
}
