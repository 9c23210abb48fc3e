package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

// inside marks the process that runs the tests in namespaces of its own, so that their bridge and their rules of the
// firewall are not this machine's.
const inside = "OUTSPAN_TEST_INSIDE"

// server makes this binary the program of a container: it answers each connection to port 80 with the variable's value.
const server = "OUTSPAN_TEST_SERVER"

func TestMain(m *testing.M) {
	if word := os.Getenv(server); word != "" {
		serve(word)
		return
	}
	if address := os.Getenv(asker); address != "" {
		fmt.Print(ask(address))
		return
	}
	if os.Getenv(inside) == "" && os.Getuid() == 0 {
		os.Exit(runInside())
	}
	if os.Getenv(inside) != "" {
		prepareInside()
	}
	os.Exit(m.Run())
}

// runInside runs this test binary again in new namespaces for the network and for mounts.
func runInside() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // Pdeathsig belongs to the thread
	if err := cmd.Run(); err != nil {
		return 1
	}
	return 0
}

// prepareInside shows these tests an /etc/resolv.conf with a name server that containers can reach.
func prepareInside() {
	f, err := os.CreateTemp("", "resolv-")
	if err == nil {
		_, err = f.WriteString("nameserver 192.0.2.53\n")
	}
	if err == nil {
		err = unix.Mount(f.Name(), "/etc/resolv.conf", "", unix.MS_BIND, "")
	}
	if err != nil {
		panic(err)
	}
	_, _ = f.Close(), os.Remove(f.Name())
}

func serve(word string) {
	ln, err := net.Listen("tcp4", ":80")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ready")
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write([]byte(word))
		_ = c.Close()
	}
}

// open returns a Network of a machine with the address 192.0.2.1, whose files are in dir.
func open(t *testing.T, dir string, node model.NodeID, change ...func(*Config)) *Network {
	t.Helper()
	if os.Getenv(inside) == "" {
		skip(t, "needs root")
	}
	_, err := os.Stat(filepath.Join(defaultPlugins(), "portmap"))
	_, noTables := exec.LookPath("iptables")
	if err != nil || noTables != nil {
		skip(t, "needs the CNI plugins and iptables")
	}
	for _, args := range [][]string{{"link", "set", "lo", "up"}, {"address", "replace", "192.0.2.1/32", "dev", "lo"}} {
		if _, err := run(t.Context(), "ip", args...); err != nil {
			t.Fatal(err)
		}
	}
	cfg := Config{Node: node, Dir: dir, Address: netip.MustParseAddr("192.0.2.1")}
	for _, f := range change {
		f(&cfg)
	}
	n, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := n.Sweep(context.Background(), func(string) bool { return false }); err != nil {
			t.Error(err)
		}
		_ = n.Close()
		checkNothing(t, n)
	})
	return n
}

// checkNothing checks that a Network without containers has no bridge, rule, address, namespace or file.
func checkNothing(t *testing.T, n *Network) {
	t.Helper()
	for _, table := range []string{"nat", "filter", "mangle", "raw"} {
		if left, err := run(context.Background(), "iptables", "-t", table, "-S"); err != nil ||
			strings.Contains(left, n.tag) {
			t.Errorf("rules are left: %s %v", left, err)
		}
	}
	if _, err := net.InterfaceByName(n.Device()); err == nil {
		t.Errorf("the bridge %s is left", n.Device())
	}
	for _, pattern := range []string{"leases/*/1*", "netns/*", "files/*", "results/results/*"} {
		if left, err := filepath.Glob(filepath.Join(n.cfg.Dir, pattern)); err != nil || len(left) > 0 {
			t.Errorf("%v are left, %v", left, err)
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), n.cfg.Dir) {
		t.Errorf("mounts are left, %v: %s", err, mounts)
	}
}

func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("OUTSPAN_E2E_REQUIRED") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// connect connects a container that serves its id on port 80, and returns its attachment.
func connect(t *testing.T, n *Network, id string, mappings ...Mapping) Attachment {
	t.Helper()
	a, err := n.Add(t.Context(), id, "host-"+id, mappings)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "nsenter", "--net="+a.Netns, self)
	cmd.Env = append(os.Environ(), server+"="+id)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line := make([]byte, 64)
	if k, err := out.Read(line); err != nil || string(line[:k]) != "ready\n" {
		t.Fatalf("the server said %q: %v", line[:k], err)
	}
	return a
}

// ask returns what the server at address answers; an empty string if nobody does.
func ask(address string) string { return askWithin(address, time.Second) }

// askWithin is ask with a limit of the time to connect.
func askWithin(address string, limit time.Duration) string {
	c, err := net.DialTimeout("tcp4", address, limit)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	word, _ := io.ReadAll(c)
	return string(word)
}

func TestPortsLeadToContainers(t *testing.T) {
	n := open(t, t.TempDir(), "n1")
	a := connect(t, n, "a", Mapping{8001, 80})
	b := connect(t, n, "b", Mapping{8002, 80})
	if a.Address == b.Address || !n.Subnet().Contains(a.Address) || a.Gateway != b.Gateway {
		t.Errorf("attachments %v and %v in %v", a, b, n.Subnet())
	}
	for address, want := range map[string]string{
		"192.0.2.1:8001": "a", "192.0.2.1:8002": "b", a.Address.String() + ":80": "a", "192.0.2.1:8003": "",
	} {
		if got := ask(address); got != want {
			t.Errorf("%s answers %q, want %q", address, got, want)
		}
	}
	if _, err := net.Listen("tcp4", "192.0.2.1:8001"); err == nil {
		t.Error("another program can bind a mapped port")
	}
	if err := n.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got := ask("192.0.2.1:8001") + ask("192.0.2.1:8002"); got != "b" {
		t.Errorf("after one was removed the ports answer %q", got)
	}
	ln, err := net.Listen("tcp4", "192.0.2.1:8001")
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	if err := n.Remove(t.Context(), "a"); err != nil {
		t.Errorf("removed twice: %v", err)
	}
}

func TestPortTaken(t *testing.T) {
	n := open(t, t.TempDir(), "n1")
	ln, err := net.Listen("tcp4", "192.0.2.1:8005")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, err = n.Add(t.Context(), "a", "a", []Mapping{{8004, 80}, {8005, 80}})
	if codeOf(err) != CodePortTaken || !strings.Contains(err.Error(), "8005") {
		t.Errorf("error %v", err)
	}
	if ids, err := n.attached(); err != nil || len(ids) > 0 {
		t.Errorf("left: %v %v", ids, err)
	}
	if _, err := n.Add(t.Context(), "b", "b", []Mapping{{8004, 80}}); err != nil {
		t.Errorf("the refused container holds a port: %v", err)
	}
}

// Two agents on one machine share nothing.
func TestNeighbours(t *testing.T) {
	one, two := open(t, t.TempDir(), "n1"), open(t, t.TempDir(), "n2")
	connect(t, one, "a", Mapping{8001, 80})
	connect(t, two, "a", Mapping{8002, 80})
	if one.Device() == two.Device() || one.Subnet().Overlaps(two.Subnet()) {
		t.Errorf("%s %v and %s %v", one.Device(), one.Subnet(), two.Device(), two.Subnet())
	}
	if _, err := one.Sweep(t.Context(), func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	checkNothing(t, one)
	if got := ask("192.0.2.1:8002"); got != "a" {
		t.Errorf("the neighbour's port answers %q", got)
	}
}

func TestOpenWithoutPlugins(t *testing.T) {
	_, err := Open(Config{Node: "n1", Dir: t.TempDir(), Plugins: t.TempDir(), Address: netip.MustParseAddr("192.0.2.1")})
	if codeOf(err) != CodeUnavailable || !strings.Contains(err.Error(), "no CNI plugin bridge") {
		t.Errorf("error %v", err)
	}
}

func TestOpenWithIPv6(t *testing.T) {
	_, err := Open(Config{Node: "n1", Dir: t.TempDir(), Address: netip.MustParseAddr("2001:db8::1")})
	if codeOf(err) != CodeUnavailable || !strings.Contains(err.Error(), "not IPv4") {
		t.Errorf("error %v", err)
	}
}

// A container finds its name, and name servers.
func TestFilesOfAContainer(t *testing.T) {
	n := open(t, t.TempDir(), "n1")
	a := connect(t, n, "a")
	hosts, err := os.ReadFile(a.Hosts)
	if err != nil || string(hosts) != "127.0.0.1\tlocalhost\n"+a.Address.String()+"\thost-a\n" {
		t.Errorf("hosts %q, %v", hosts, err)
	}
	if text, err := os.ReadFile(a.Resolv); err != nil || string(text) != "nameserver 192.0.2.53\n" {
		t.Errorf("resolv.conf %q, %v", text, err)
	}
}

// A port can be mapped while connections of its last program are being forgotten.
func TestPortInTimeWait(t *testing.T) {
	n := open(t, t.TempDir(), "n1")
	ln, err := net.Listen("tcp4", "192.0.2.1:8009")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp4", "192.0.2.1:8009")
	if err != nil {
		t.Fatal(err)
	}
	served, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = ln.Close(), served.Close()
	_, _ = io.ReadAll(c)
	_ = c.Close()
	connect(t, n, "a", Mapping{8009, 80})
	if got := ask("192.0.2.1:8009"); got != "a" {
		t.Errorf("the port answers %q", got)
	}
}

// An agent with a loopback address maps its ports too.
func TestLoopback(t *testing.T) {
	n := open(t, t.TempDir(), "n1", func(c *Config) { c.Address = netip.MustParseAddr("127.0.0.7") })
	connect(t, n, "a", Mapping{8001, 80})
	if got := ask("127.0.0.7:8001"); got != "a" {
		t.Errorf("the port answers %q", got)
	}
}

func TestFreeSubnet(t *testing.T) {
	first, ok := freeSubnet("n1", nil)
	if !ok || !pool.Overlaps(first) || first.Bits() != subnetBits || first != first.Masked() {
		t.Fatalf("subnet %v", first)
	}
	other, ok := freeSubnet("n1", []netip.Prefix{netip.PrefixFrom(first.Addr().Next(), 32)})
	if !ok || other.Overlaps(first) {
		t.Errorf("subnet %v beside %v", other, first)
	}
	if all, ok := freeSubnet("n1", []netip.Prefix{netip.MustParsePrefix("172.16.0.0/12")}); ok {
		t.Errorf("a full pool has %v", all)
	}
}

func TestParseRoutes(t *testing.T) {
	const table = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n" +
		"eth0 00000000 0100A8C0 0003 0 0 0 00000000 0 0 0\n" +
		"eth0 0000A8C0 00000000 0001 0 0 0 0000FFFF 0 0 0\n"
	routes, err := parseRoutes(strings.NewReader(table))
	if err != nil || !slices.Equal(routes, []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}) {
		t.Errorf("routes %v, %v", routes, err)
	}
	if _, err := parseRoutes(bytes.NewReader([]byte("header\neth0 zz 0 0 0 0 0 00000000 0 0 0\n"))); err == nil {
		t.Error("no error")
	}
}

func TestResolvers(t *testing.T) {
	dir := t.TempDir()
	stub, upstream := filepath.Join(dir, "stub"), filepath.Join(dir, "upstream")
	for file, text := range map[string]string{
		stub: "nameserver 127.0.0.53\n", upstream: "# kept\nsearch example.com\nnameserver 192.0.2.53\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := resolvers(stub, upstream); err != nil || !strings.Contains(string(text), "192.0.2.53") {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := resolvers(stub, filepath.Join(dir, "none")); codeOf(err) != CodeUnavailable {
		t.Errorf("error %v", err)
	}
	if text, err := resolvers(filepath.Join(dir, "none"), upstream); err != nil || len(text) > 0 {
		t.Errorf("of a machine without name servers: %q, %v", text, err)
	}
}

func codeOf(err error) model.Code {
	if e := (*model.Error)(nil); errors.As(err, &e) {
		return e.Code
	}
	return ""
}
