package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

func TestExpand(t *testing.T) {
	v := values{
		node: nodeFacts{id: "01j", name: "n1", labels: map[string]string{"rack": "r1", "a.b": "dotted"}}, slot: 7,
		port: map[string]int{"http": 8080, "web-2": 9},
	}
	tests := []struct{ text, want, fails string }{
		{"", "", ""},
		{"plain $text $$ }", "plain $text $$ }", ""},
		{":${port.http}/${slot}", ":8080/7", ""},
		{"${port.web-2}${node.id}${node.name}", "901jn1", ""},
		{"${node.label.rack} ${node.label.a.b}", "r1 dotted", ""},
		{"$${port.http} $${slot}", "${port.http} ${slot}", ""},
		{"${HOME} ${1:-x} ${a[0]} ${} ${.} ${slot", "${HOME} ${1:-x} ${a[0]} ${} ${.} ${slot", ""},
		{"${a${slot}}", "${a7}", ""},
		{"${port.nope}", "", "${port.nope}"},
		{"${node.label.nope}", "", "node.label.rack"},
		{"${env.SECRET}", "", "unknown variable"},
	}
	for _, tt := range tests {
		got, err := v.expand("it", tt.text)
		if tt.fails == "" && (err != nil || got != tt.want) {
			t.Errorf("%q: %q %v, want %q", tt.text, got, err, tt.want)
		}
		if tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
			t.Errorf("%q: %q %v, want an error with %q", tt.text, got, err, tt.fails)
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"${port.http}", "$${x}", "${", "$", "${slot}}", "${${slot}}"} {
		f.Add(s)
	}
	v := values{node: nodeFacts{id: "n"}, port: map[string]int{"http": 1}}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := v.expand("it", text)
		if err == nil && !strings.Contains(text, "${") && got != text {
			t.Errorf("%q became %q", text, got)
		}
	})
}

func TestConfig(t *testing.T) {
	good := func() Config {
		return Config{Name: "n1", DataDir: filepath.Join(t.TempDir(), "d"), Servers: newServers(t),
			Node: NodeConfig{Address: "127.0.0.1"}}
	}
	tests := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"good", func(*Config) {}, ""},
		{"name", func(c *Config) { c.Name = "a b" }, `node name "a b"`},
		{"dir", func(c *Config) { c.DataDir = "data" }, "not an absolute path"},
		{"address", func(c *Config) { c.Node.Address = "n1.lan" }, "n1.lan"},
		{"any address", func(c *Config) { c.Node.Address = "0.0.0.0" }, "0.0.0.0"},
		{"ports", func(c *Config) { c.Node.PortMin, c.Node.PortMax = 3000, 2000 }, "3000-2000"},
		{"shutdown", func(c *Config) { c.OnShutdown = "die" }, "neither"},
		{"drain", func(c *Config) { c.OnShutdown = ShutdownDrain }, "needs a way"},
		{"servers", func(c *Config) { c.Servers = nil }, "no servers"},
		{"label", func(c *Config) { c.Node.Labels = map[string]string{"a b": "c"} }, "a b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := good()
			tt.change(&cfg)
			cfg.Runtime = newMemory()
			a, err := New(cfg)
			if tt.want == "" {
				must(t, err)
				a.home.close()
				return
			}
			var refused *model.Error
			if !errors.As(err, &refused) || refused.Code != model.CodeInvalid || !strings.Contains(refused.Message, tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestDetectCapacity(t *testing.T) {
	const mem = "MemTotal:       16384 kB\nMemFree: 1 kB\n"
	tests := []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"bare machine", map[string]string{"proc/meminfo": mem}, 16 << 20},
		{"no meminfo", map[string]string{"proc/version": "x"}, 0},
		{"v2 limit above", map[string]string{
			"proc/meminfo": mem, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "8388608\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n",
		}, 8 << 20},
		{"v2 container",
			map[string]string{"proc/meminfo": mem, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "4194304\n"},
			4 << 20},
		{"v1 limit", map[string]string{
			"proc/meminfo": mem, "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/docker/1\n",
			"sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": "2097152\n",
		}, 2 << 20},
		{"v1 no limit", map[string]string{
			"proc/meminfo": mem, "proc/self/cgroup": "4:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 16 << 20},
		{"garbage", map[string]string{"proc/meminfo": mem, "proc/self/cgroup": "what\n::\n0::/../..\n"}, 16 << 20},
	}
	for _, tt := range tests {
		root := t.TempDir()
		for name, text := range tt.files {
			must(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755))
			must(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
		}
		if got := detectCapacity(root); got.MemoryBytes != tt.want || got.CPU < sharesPerCore {
			t.Errorf("%s: %+v, want %d bytes", tt.name, got, tt.want)
		}
	}
	if here := detectCapacity("/"); here.MemoryBytes < 64<<20 {
		t.Errorf("this machine: %+v", here)
	}
}

// The data of a volume outlives an instance, and the next holder of the slot finds that data. If the agent can mount
// volumes, the program and its checks find the data at the volume's path, even if their user may not enter the
// directory above the agent's data directory.
func TestVolumeKeepsItsData(t *testing.T) {
	b := newBench(t, allowRoot)
	place, path := filepath.Join(t.TempDir(), "x", "place"), "$OUTSPAN_VOLUME_DATA"
	user := ""
	if b.agent.cfg.Runtime.Capabilities().Binds {
		dir, err := os.MkdirTemp("", "agent-test-place-") //nolint:usetesting // other users must be able to pass through
		must(t, err)
		t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
		must(t, os.Chmod(dir, 0o711))
		place = filepath.Join(dir, "x", "place")
		user, path = "65534", place // a user other than the agent's must reach the volume too
		must(t, os.Chmod(b.dir, 0o700))
	}
	g := sh(`echo "$OUTSPAN_INSTANCE_ID" >> "` + path + `/log"; exec sleep 1000`)
	g.Exec.User = user
	g.Checks = []model.CheckSpec{{Name: "data", Kind: model.CheckExec,
		Command:  []string{"sh", "-c", `test -s "` + path + `/log"`},
		Interval: 100 * model.Millisecond, Timeout: 5 * model.Second, Successes: 1, Failures: 3}}
	g.Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: place}}
	group := b.submit("db", plainUser(g))
	first := b.place(group, 0, b.node(), nil)
	b.await(first, model.ObservedReady)
	b.stop(first, nil)
	b.await(first, model.ObservedStopped)
	second := b.place(group, 0, b.node(), nil)
	b.await(second, model.ObservedReady)
	var text []byte
	eventually(t, "both to have written", func() bool {
		text, _ = os.ReadFile(b.cfg.DataDir + "/volumes/db/g/0/data/log")
		return strings.Count(string(text), "\n") == 2
	})
	if got := strings.Fields(string(text)); !slices.Equal(got, []string{string(first), string(second)}) {
		t.Errorf("%q", got)
	}
}

func TestVolumesClaim(t *testing.T) {
	v := newVolumes(t.TempDir())
	spec := &model.GroupSpec{Volumes: []model.VolumeSpec{{Name: "a"}, {Name: "b"}}}
	of := func(id model.InstanceID, slot int) transport.Assignment {
		return transport.Assignment{ID: id, Job: "j", Group: "j/g", Slot: slot, Spec: spec}
	}
	if holder, _ := v.claim(of("one", 0)); holder != "" {
		t.Fatalf("held by %q", holder)
	}
	if holder, _ := v.claim(of("one", 0)); holder != "" {
		t.Errorf("its own: held by %q", holder)
	}
	if holder, _ := v.claim(of("other slot", 1)); holder != "" {
		t.Errorf("another slot: held by %q", holder)
	}
	holder, freed := v.claim(of("two", 0))
	if holder != "one" {
		t.Errorf("held by %q", holder)
	}
	v.release("one")
	select {
	case <-freed:
	default:
		t.Error("nobody was told")
	}
	if holder, _ := v.claim(of("two", 0)); holder != "" {
		t.Errorf("after the release: held by %q", holder)
	}
}

// If a process outside outspan listens on the port of an instance, the agent reports the conflict. It starts the
// program once the port is free.
func TestPortConflict(t *testing.T) {
	b := newBench(t, allowRoot)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	g := sh("exec sleep 1000")
	g.Ports = []model.PortSpec{{Name: "http"}}
	g.Restart = model.RestartSpec{Attempts: 50, Interval: model.Minute, Delay: 50 * model.Millisecond}
	id := b.run("web", g, model.Ports{{Name: "http", Number: port}})
	eventually(t, "the reason", func() bool {
		return strings.Contains(b.instance(id).Status.Reason, "in use by a process outside")
	})
	l.Close()
	b.await(id, model.ObservedReady)
}

// An instance fails if its static port is reserved for a listener of the agent, even while the agent does not listen
// yet.
func TestInstanceGetsNoPortOfItsAgent(t *testing.T) {
	b := newBench(t, allowRoot)
	port := freePort(t, "127.0.0.1")
	b.agent.forward.ports.reserve(port)
	g := sh("exec sleep 1000")
	g.Ports = []model.PortSpec{{Name: "http", Static: port}}
	i := b.await(b.run("web", g, model.Ports{{Name: "http", Number: port}}), model.ObservedFailed)
	if want := fmt.Sprint("this agent listens on it: port ", port); !strings.Contains(i.Status.Reason, want) {
		t.Errorf("reason %q does not contain %q", i.Status.Reason, want)
	}
}

// When heartbeats are no longer answered, the shim kills an exclusive program at the end of its lease, even without an
// agent. Other programs continue.
func TestFencing(t *testing.T) {
	v := newVotes()
	b := newBench(t, allowRoot)
	b.stopAgent()
	b.beats = v
	b.start()
	onePid, freePid := filepath.Join(b.dir, "one"), filepath.Join(b.dir, "free")
	g := sh("trap '' TERM; echo $$ > " + onePid + "; while :; do sleep 0.05; done")
	g.Exclusive = &model.ExclusiveSpec{Lease: 10 * model.Second}
	one := b.run("one", g, nil)
	free := b.run("free", sh("echo $$ > "+freePid+"; exec sleep 1000"), nil)
	b.await(one, model.ObservedReady)
	b.await(free, model.ObservedReady)
	pid := pidOf(t, onePid)
	time.Sleep(12 * time.Second) // longer than a lease
	if !alive(pid) {
		t.Fatal("it was killed while servers answered")
	}
	v.set(true)
	b.setDown(true)
	b.stopAgent() // the shim kills the program without an agent
	eventually(t, "the fence", func() bool { return !alive(pid) })
	if !alive(pidOf(t, freePid)) {
		t.Error("the one without a fence was disturbed")
	}
	v.set(false)
	b.setDown(false)
	b.start()
	eventually(t, "it to be back", func() bool { i := b.instance(one); return i.Ready() && i.Status.Restarts == 1 })
	if got := b.history(one); !slices.Contains(got, "unready fenced") {
		t.Errorf("history %q", got)
	}
}

// An exposed service is reached at the agent's own address, and an instance finds that address in its environment.
func TestServiceThroughTheAgent(t *testing.T) {
	b := newBench(t, allowRoot)
	expose, port := freePort(t, "127.0.0.1"), freePort(t, "127.0.0.1")
	g := sh("exec " + os.Args[0] + " program http $OUTSPAN_IP:$OUTSPAN_PORT_HTTP hello")
	g.Ports = []model.PortSpec{{Name: "http"}}
	g.Services = []model.ServiceSpec{{Name: "web", Port: "http", Expose: expose}}
	g.Checks = []model.CheckSpec{{Name: "up", Kind: model.CheckTCP, Port: "http", Interval: 100 * model.Millisecond}}
	id := b.run("web", g, model.Ports{{Name: "http", Number: port}})
	b.await(id, model.ObservedReady)
	c := caller(t, false)
	eventually(t, "an answer", func() bool { got, _ := get(c, hostPort("127.0.0.1", expose)); return got == "hello" })
	out := filepath.Join(b.dir, "out")
	b.run("user", sh("echo $OUTSPAN_SERVICE_WEB > "+out+"; exec sleep 1000"), nil)
	eventually(t, "the address in the environment", func() bool {
		text, _ := os.ReadFile(out)
		return strings.TrimSpace(string(text)) == hostPort("127.0.0.1", expose)
	})
}

// An agent stores the servers' addresses that a registration returns, so that its next start knows them.
func TestKeepsTheServers(t *testing.T) {
	b := newBench(t, allowRoot)
	if got := KnownServers(b.cfg.DataDir); !slices.Equal(got, []string{"10.0.0.1:7640", "10.0.0.2:7640"}) {
		t.Errorf("known servers are %q", got)
	}
	if got := KnownServers(t.TempDir()); got != nil {
		t.Errorf("before the first registration %q are known", got)
	}
}

func TestLabelsAreRegisteredAgain(t *testing.T) {
	b := newBench(t, allowRoot)
	b.agent.SetLabels(map[string]string{"rack": "r2"})
	eventually(t, "the label", func() bool { return b.nodeRow().Shape.Labels["rack"] == "r2" })
	b.awaitEligible()
	before := b.count("register")
	b.agent.SetLabels(map[string]string{"rack": "r2"})
	b.run("web", sh("exec sleep 1000"), nil)
	if b.count("register") != before {
		t.Error("it registered for nothing")
	}
}

// When an agent registers, it describes its machine.
func TestRegistration(t *testing.T) {
	b := newBench(t, allowRoot, func(c *Config) {
		c.Node.Labels = map[string]string{"rack": "r1"}
		c.Node.Reserve = model.Resources{CPU: 100, MemoryBytes: 1 << 30}
		c.Exec.CgroupParent = "none"
		c.Version = "1.2.3"
	})
	n := b.nodeRow()
	want := model.NodeShape{
		Capacity: model.Resources{CPU: 4000, MemoryBytes: 8 << 30}, Reserved: model.Resources{CPU: 100, MemoryBytes: 1 << 30},
		Labels: map[string]string{"rack": "r1"}, PortMin: defaultPortMin, PortMax: defaultPortMax, Attributes: attributes(),
	}
	if diff := cmp.Diff(want, n.Shape); diff != "" {
		t.Error(diff)
	}
	boot, err := bootID()
	must(t, err)
	if n.Agent.BootID != boot || n.Agent.Incarnation == "" || n.Agent.Version != "1.2.3" ||
		n.Agent.Address != "127.0.0.1" {
		t.Errorf("%+v", n.Agent)
	}
	if !slices.ContainsFunc(n.Agent.Warnings, func(w string) bool {
		return strings.HasPrefix(w, "memory caps not enforced")
	}) {
		t.Errorf("warnings %q", n.Agent.Warnings)
	}
	if n.Shape.Attributes["kernel"] == "" || n.Shape.Attributes["arch"] == "" {
		t.Errorf("attributes %v", n.Shape.Attributes)
	}
}

func TestReporterAwaits(t *testing.T) {
	block := make(chan struct{})
	r := newReporter("n", func(ctx context.Context, _ transport.ReportRequest) (transport.ReportReply, error) {
		<-block
		return transport.ReportReply{}, nil
	}, testLog(t))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.run(ctx) }()
	r.begin(registration{1, 1}, 0)
	r.set(model.InstanceStatus{ID: "a", Generation: 3, Observed: model.ObservedReady})
	if r.await(ctx, "a", 3, 50*time.Millisecond) {
		t.Error("delivered before the servers answered")
	}
	close(block)
	if !r.await(ctx, "a", 3, patience) || r.delivered("a", 4) {
		t.Error("not delivered, or more than was sent")
	}
	cancel()
	<-done
}
