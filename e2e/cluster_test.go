package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

// patience is the limit of every wait for something that has no promised time. It is long because tests run on busy
// machines.
const patience = 45 * time.Second

// offlineAfter (T) is the time after which a silent node is offline, and heartbeat (H) is the time between two
// heartbeats. Clusters with the option unhurried have longer times.
const (
	offlineAfter = 2 * time.Second
	heartbeat    = offlineAfter / 6
)

// options are what a test needs of its cluster.
type options struct {
	servers, agents int
	namespaces      bool   // each member has its own network namespace; needs root
	memory          string // memory of each agent; default 2GiB
	unhurried       bool   // use the product's defaults: a node is offline after 60 s, and gossip has the profile lan
	managed         bool   // tls { managed = true }: the members are set up by outspan up and outspan join
	bin             string // path of the program; default: a build of this source
}

// cluster is a whole cluster of real processes. It is removed when its test ends.
type cluster struct {
	name    string
	dir     string
	bin     string
	options options
	network *network // nil if the cluster uses loopback
	servers []*member
	agents  []*member
}

// startCluster makes certificates, starts every member and waits until all nodes accept instances.
func startCluster(t testing.TB, o options) *cluster {
	t.Helper()
	c := newCluster(t, o)
	for _, m := range c.members() {
		m.start(t)
	}
	c.waitEligible(t, c.agents...)
	return c
}

// newCluster makes everything that a cluster needs, but starts no member.
func newCluster(t testing.TB, o options) *cluster {
	t.Helper()
	c := newMembers(t, o)
	c.makeCertificates(t)
	if o.namespaces {
		c.network = newNetwork(t, c)
	}
	for _, m := range c.members() {
		m.configure(t, m.settings())
	}
	return c
}

// newMembers makes the directory of a cluster, and chooses the names and addresses of its members.
func newMembers(t testing.TB, o options) *cluster {
	t.Helper()
	if o.memory == "" {
		o.memory = "2GiB"
	}
	if o.bin == "" {
		o.bin = mustProgram(t)
	}
	c := &cluster{name: runName(), options: o, bin: o.bin}
	c.dir = "/tmp/" + c.name
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.remove(t) })
	subnet := fmt.Sprintf("127.%d.%d", 32+rand.IntN(200), 1+rand.IntN(250))
	if o.namespaces {
		subnet = "10.83.7"
	}
	for i := range o.servers {
		c.servers = append(c.servers, c.newMember("server", fmt.Sprintf("s%d", i+1), fmt.Sprintf("%s.%d", subnet, i+1)))
	}
	for i := range o.agents {
		c.agents = append(c.agents, c.newMember("agent", fmt.Sprintf("n%d", i+1), fmt.Sprintf("%s.%d", subnet, 101+i)))
	}
	return c
}

func (c *cluster) members() []*member { return slices.Concat(c.servers, c.agents) }

func (c *cluster) member(name string) *member {
	for _, m := range c.members() {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// makeCertificates makes the files that a user makes with the program: a CA, the gossip key, a certificate for each
// process, and one for a person.
func (c *cluster) makeCertificates(t testing.TB) {
	t.Helper()
	dir := c.path("tls")
	c.must(t, "tls", "ca", "create", "--dir", dir)
	for _, m := range c.members() {
		c.must(t, "tls", "cert", "create", "--dir", dir, "--"+m.role, m.Name)
	}
	c.must(t, "tls", "cert", "create", "--dir", dir, "--cli", "me")
	c.must(t, "gossip", "key", "create", c.path("gossip.key"))
}

func (c *cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

// remove kills all processes of the cluster and removes its files, cgroups and namespaces. If the test has failed, it
// also prints the ends of the logs, and with OUTSPAN_E2E_KEEP=1 it keeps the files.
func (c *cluster) remove(t testing.TB) {
	for _, m := range c.members() {
		m.Kill()
	}
	for range 500 {
		left := belonging(c.dir)
		left = slices.Concat(left, c.shims(), c.doorsOf(c.agents...))
		procs.Kill(left...)
		if len(left) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if t.Failed() {
		for _, m := range c.members() {
			t.Logf("-- end of the log of %s\n%s", m.Name, m.LastLines(25))
		}
	}
	if c.network != nil {
		c.network.remove(t)
	}
	if err := procs.RemoveCgroups(c.name); err != nil {
		t.Logf("remove cgroups: %v", err)
	}
	if t.Failed() && os.Getenv("OUTSPAN_E2E_KEEP") == "1" {
		kept := strings.Replace(c.dir, namePrefix, "kept-"+namePrefix, 1)
		t.Logf("kept: %s (%v)", kept, os.Rename(c.dir, kept))
		return
	}
	if t.Failed() {
		unmount(c.dir + "/")
	}
	if err := os.RemoveAll(c.dir); err != nil {
		t.Errorf("remove the cluster's files: %v", err)
	}
}

// member is one server or agent.
type member struct {
	procs.Process
	c       *cluster
	role    string
	address string
	cert    string // base name of the certificate's files
	bin     string // path of another build of the program; "" means the cluster's bin
}

func (c *cluster) newMember(role, name, address string) *member {
	return &member{c: c, role: role, address: address, cert: role + "-" + name,
		Process: procs.Process{Name: name, Log: c.path(name + ".log"), Family: relatives}}
}

func (m *member) data() string { return m.c.path(m.Name) }

// config returns the path of the member's configuration: a file, or in a managed cluster the directory into which
// outspan up or outspan join writes.
func (m *member) config() string {
	if m.c.options.managed {
		return m.c.path(m.Name + ".d")
	}
	return m.c.path(m.Name + ".hcl")
}

// socket returns the path of the member's API socket, which can be used from any network namespace.
func (m *member) socket() string { return m.c.path(m.Name + ".sock") }

// api returns the address of the member's API, as host:port.
func (m *member) api() string { return net.JoinHostPort(m.address, "7640") }

// settings returns the usual contents of the member's configuration file: name, data_dir, and the text inside each
// block. In a managed cluster it returns only what outspan up and outspan join don't write.
func (m *member) settings() map[string]string {
	quoted := func(members []*member, port string) string {
		var list []string
		for _, one := range members {
			list = append(list, strconv.Quote(net.JoinHostPort(one.address, port)))
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	c, profile := m.c, "fast"
	if c.options.unhurried {
		profile = "lan"
	}
	s := map[string]string{
		"listen": fmt.Sprintf("socket = %q", m.socket()),
		"gossip": fmt.Sprintf("profile = %q", profile),
	}
	if m.role == "server" {
		if !c.options.unhurried {
			s["settings"] = fmt.Sprintf("offline_after = %q", offlineAfter)
		}
		s["limits"] = "requests_per_second = 1000" // the tests send many requests
	} else {
		s["agent"] = fmt.Sprintf("cgroup_root = %q\n  capacity {\n    memory = %q\n  }", c.name, c.options.memory)
	}
	if c.options.managed {
		return s
	}
	s["name"], s["data_dir"] = strconv.Quote(m.Name), strconv.Quote(m.data())
	s["listen"] += fmt.Sprintf("\n  address = %q", m.address)
	s["tls"] = fmt.Sprintf("ca_file = %q\n  cert_file = %q\n  key_file = %q",
		c.path("tls", "ca.pem"), c.path("tls", m.cert+".pem"), c.path("tls", m.cert+"-key.pem"))
	s["gossip"] += fmt.Sprintf("\n  key_file = %q", c.path("gossip.key"))
	if m.role == "server" {
		s["server"] = fmt.Sprintf("bootstrap_expect = %d\n  retry_join = %s", c.options.servers, quoted(c.servers, "7642"))
	} else {
		s["agent"] += "\n  servers = " + quoted(c.servers, "7640")
	}
	return s
}

func (m *member) configure(t testing.TB, settings map[string]string) {
	t.Helper()
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if key == "name" || key == "data_dir" {
			fmt.Fprintf(&text, "%s = %s\n", key, settings[key])
		} else {
			fmt.Fprintf(&text, "%s {\n  %s\n}\n", key, settings[key])
		}
	}
	path := m.config()
	if m.c.options.managed {
		path = filepath.Join(path, "site.hcl")
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// command returns the command that starts the member's process. If the member has a network namespace, the process runs
// in this namespace.
func (m *member) command() []string {
	bin := m.c.bin
	if m.bin != "" {
		bin = m.bin
	}
	args := m.inSpace(bin, m.role, "run", "--config", m.config())
	if _, err := os.Stat(m.bootFile()); err == nil {
		args = m.inOwnBoot(args)
	}
	return args
}

// inSpace returns a command that runs in the member's network namespace, if it has one, and by the member's clock.
func (m *member) inSpace(command ...string) []string {
	if _, err := os.Stat(m.clock()); err == nil {
		command = append([]string{"env", clockVariable + "=" + m.clock()}, command...)
	}
	if m.c.network == nil {
		return command
	}
	return append([]string{"nsenter", "--net=" + m.c.network.space(m), "--"}, command...)
}

func (m *member) start(t testing.TB) {
	t.Helper()
	m.Command = m.command()
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
}

// terminate asks the member to stop, waits until it has exited, and returns its exit code.
func (m *member) terminate(t testing.TB) int {
	t.Helper()
	_ = m.Signal(syscall.SIGTERM)
	return m.exitCode(t)
}

// exitCode waits until the process has exited, and returns its exit code.
func (m *member) exitCode(t testing.TB) int {
	t.Helper()
	if err := m.Wait(patience); err != nil {
		t.Fatal(err)
	}
	return m.ExitCode()
}

// die kills the agent and everything that it runs, as when a machine loses power.
func (m *member) die(t testing.TB) {
	t.Helper()
	m.Kill()
	waitFor(t, "the end of all processes of "+m.Name, patience, func() error {
		left := slices.Concat(m.c.shims(m), m.c.doorsOf(m), pidsOf(m.c.instances(m)))
		procs.Kill(left...)
		if len(left) > 0 {
			return fmt.Errorf("%v are left", left)
		}
		return nil
	})
}

// waitFor calls the function done every 25 ms until it returns nil. After the time limit, the test fails with the last
// error that done returned.
func waitFor(t testing.TB, what string, limit time.Duration, done func() error) {
	t.Helper()
	if err := within(limit, done); err != nil {
		t.Fatalf("%s did not come about: %v", what, err)
	}
}

var errNever = errors.New("not looked at")

func within(limit time.Duration, done func() error) error {
	return procs.Until(context.Background(), limit, 25*time.Millisecond, func(context.Context) error { return done() })
}
