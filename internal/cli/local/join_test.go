package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// gate admits newcomers on the real port of a server. It refuses no token.
type gate struct {
	ca      *transport.Authority
	address string // host:port
	edit    func(*transport.JoinReply)
	fail    error // answers newcomers, if it is set

	mu   sync.Mutex
	keys []string // of the requests, in order
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{edit: func(*transport.JoinReply) {}}
	var err error
	if g.ca, err = transport.NewAuthority("c1", 0); err != nil {
		t.Fatal(err)
	}
	creds, err := g.ca.Credentials(pki.RoleServer, "s1")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := transport.ListenTCP(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := transport.NewListener(raw, transport.ListenerConfig{Credentials: creds, Join: g.answer})
	if err != nil {
		t.Fatal(err)
	}
	g.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return g
}

func (g *gate) answer(_ context.Context, _ net.Addr, r transport.JoinRequest) (transport.JoinReply, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	reply := transport.JoinReply{Cluster: "c1", Roots: [][]byte{g.ca.Root().Raw}, Servers: []string{"10.0.0.1:7640"},
		Gossip: []string{"10.0.0.1:7642"}, GossipKeys: [][]byte{transport.NewGossipKey()},
		Labels: map[string]string{"rack": "r1"}}
	for _, one := range [...]struct {
		role pki.Role
		der  []byte
		to   *[][]byte
	}{{pki.RoleServer, r.Server, &reply.Server}, {pki.RoleAgent, r.Agent, &reply.Agent}} {
		if len(one.der) == 0 {
			continue
		}
		request, err := pki.ParseRequest(one.der, one.role)
		if err != nil {
			return reply, err
		}
		cert, err := g.ca.Sign(request, time.Hour)
		if err != nil {
			return reply, err
		}
		*one.to = [][]byte{cert.Raw}
		g.keys = append(g.keys, fmt.Sprintf("%s %x", one.role, request.KeyHash()))
	}
	if len(r.Server) > 0 {
		reply.Keyring = [][]byte{theKey.Encode()}
	}
	g.edit(&reply)
	return reply, g.fail
}

// theKey is the key in the keyring of a gate's cluster.
var theKey = func() keyring.Key {
	dir, err := os.MkdirTemp("", "outspan-join-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ring, err := keyring.Create(filepath.Join(dir, "keyring"))
	if err != nil {
		panic(err)
	}
	return ring.Keys()[0]
}()

func (g *gate) token(t *testing.T, role pki.Role) pki.JoinToken {
	t.Helper()
	token, err := pki.NewJoinToken(role, g.ca.Root())
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// newcomer returns the options of a machine that joins at the gate, with the right token.
func (g *gate) newcomer(t *testing.T, role pki.Role) *joinOptions {
	dir := t.TempDir()
	return &joinOptions{server: role == pki.RoleServer, token: g.token(t, role), addresses: []string{g.address},
		version: "1", setupFlags: setupFlags{command: "join", name: "x1", advertise: procs.Network() + ".1",
			configDir: filepath.Join(dir, "conf"), dataDir: filepath.Join(dir, "data"), noStart: true}}
}

// run runs the join, and returns what it printed. The clock of the machine is wrong by the duration off.
func (o *joinOptions) run(t *testing.T, off time.Duration) (string, error) {
	t.Helper()
	var out bytes.Buffer
	ready := func(context.Context, string) error { return nil }
	err := runJoin(t.Context(), consoleAt(&out, off), SetupCalls{Ready: ready}, o)
	return out.String(), err
}

func consoleAt(out io.Writer, off time.Duration) *term.Console {
	return &term.Console{Out: out, Err: io.Discard, Env: func(string) string { return "" },
		Now: func() time.Time { return time.Now().Add(off) }}
}

// wantRefusal checks the code of an error, and that its message and its hint say something.
func wantRefusal(t *testing.T, err error, code model.Code, message, hint string) {
	t.Helper()
	refusal, ok := errors.AsType[*model.Error](err)
	if !ok || refusal.Code != code || !strings.Contains(refusal.Message, message) ||
		!strings.Contains(refusal.Hint, hint) {
		t.Errorf("got %v, want %s: ...%s..., next: ...%s...", err, code, message, hint)
	}
}

// A machine that has joined has everything that its process needs. Each role gets its own.
func TestJoin(t *testing.T) {
	g := newGate(t)
	for _, role := range []pki.Role{pki.RoleServer, pki.RoleAgent} {
		o := g.newcomer(t, role)
		out, err := o.run(t, 0)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(o.configDir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := daemon.CheckFiles(cfg); err != nil {
			t.Error(err)
		}
		if !strings.Contains(out, fmt.Sprintf("outspan %s run --config %s", role, o.configDir)) {
			t.Errorf("it does not say how to start it:\n%s", out)
		}
		if cfg.Name != "x1" || cfg.Cluster != "c1" || !cfg.TLS.Managed || cfg.Listen.Address != o.advertise ||
			!slices.Equal(cfg.Agent.Servers, []string{"10.0.0.1:7640"}) || cfg.Agent.Labels["rack"] != "r1" {
			t.Errorf("the configuration is %+v, agent %+v", cfg, cfg.Agent)
		}
		ring, err := keyring.Open(filepath.Join(o.dataDir, keyring.FileName))
		if role == pki.RoleAgent {
			if cfg.Server != nil || err == nil {
				t.Errorf("an agent has the server block %v and the keyring %v", cfg.Server, ring)
			}
			continue
		}
		if err != nil || ring.Active() != theKey.ID() || !slices.Equal(cfg.Server.RetryJoin, []string{"10.0.0.1:7642"}) ||
			cfg.Server.BootstrapExpect != 0 {
			t.Errorf("the keyring is %v, %v; the server is %+v", ring, err, cfg.Server)
		}
	}
}

// A join that lost its answer, or that ended between any two of its files, is repeated with the same keys.
func TestJoinIsRepeated(t *testing.T) {
	for _, role := range []pki.Role{pki.RoleServer, pki.RoleAgent} {
		g := newGate(t)
		o := g.newcomer(t, role)
		g.fail = model.Refuse(model.CodeInternal, "the answer is lost")
		if _, err := o.run(t, 0); err == nil {
			t.Fatal("it succeeded")
		}
		if exists(filepath.Join(o.configDir, configFile)) {
			t.Error("there is a configuration without an answer")
		}
		g.fail = nil
		if _, err := o.run(t, 0); err != nil {
			t.Fatal(err)
		}
		first := slices.Clone(g.keys[:len(g.keys)/2])
		if !slices.Equal(first, g.keys[len(first):]) {
			t.Errorf("the keys of the two requests are\n%s", strings.Join(g.keys, "\n"))
		}
		// The certificates are the last files: without one of them, the join was interrupted.
		managed := transport.ManagedDir(o.dataDir)
		was := fileText(t, filepath.Join(o.configDir, configFile)) + "# edited\n"
		if err := durable.ReplaceBytes(filepath.Join(o.configDir, configFile), []byte(was), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(managed.CertFile(pki.RoleAgent)); err != nil {
			t.Fatal(err)
		}
		if _, err := o.run(t, 0); err != nil {
			t.Fatal(err)
		}
		if !managed.Holds(pki.RoleAgent) || fileText(t, filepath.Join(o.configDir, configFile)) != was {
			t.Error("the certificate is missing, or the configuration was changed")
		}
		// A machine that is set up needs no server.
		o.addresses = []string{"127.0.0.1:1"}
		if out, err := o.run(t, 0); err != nil || !strings.Contains(out, "is set up already, and the token was not used") {
			t.Errorf("printed %s, %v", out, err)
		}
	}
}

// The keyring of a join that was interrupted gets the keys of the next reply.
func TestJoinCompletesTheKeyring(t *testing.T) {
	g := newGate(t)
	o := g.newcomer(t, pki.RoleServer)
	if err := os.MkdirAll(o.dataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(o.dataDir, keyring.FileName)
	if _, err := keyring.Create(path); err != nil {
		t.Fatal(err)
	}
	if _, err := o.run(t, 0); err != nil {
		t.Fatal(err)
	}
	if ring, err := keyring.Open(path); err != nil || ring.Active() != theKey.ID() || len(ring.Keys()) != 2 {
		t.Errorf("the keyring is %v, %v", ring, err)
	}
}

// A clock that is an hour off is good enough. Beyond the tolerance, the error names both clocks and the difference.
func TestJoinClock(t *testing.T) {
	g := newGate(t)
	differs := map[time.Duration]string{-3 * time.Hour: ", 3h0m0s behind that of the servers"}
	for _, off := range []time.Duration{time.Hour, -time.Hour, 36 * time.Hour, -3 * time.Hour, -36 * time.Hour} {
		o := g.newcomer(t, pki.RoleAgent)
		_, err := o.run(t, off)
		switch {
		case off.Abs() <= time.Hour && err != nil:
			t.Errorf("clock %s: %v", off, err)
		case off.Abs() > time.Hour:
			wantRefusal(t, err, model.CodeCertificateRefused, "the clock of this machine says",
				"run date -u here and on")
			wantRefusal(t, err, model.CodeCertificateRefused, differs[off], "set the clock that is wrong")
			if exists(filepath.Join(o.configDir, configFile)) {
				t.Errorf("clock %s: there is a configuration", off)
			}
		}
	}
}

// A reply that would leave a machine that can't work is refused, and no configuration is written.
func TestJoinChecksTheReply(t *testing.T) {
	other, err := transport.NewAuthority("c1", 0)
	if err != nil {
		t.Fatal(err)
	}
	g := newGate(t)
	for name, test := range map[string]struct {
		edit func(*transport.JoinReply)
		want string
	}{
		"another cluster": {func(r *transport.JoinReply) { r.Cluster = "c2" }, "lacks the right name of the cluster"},
		"no gossip key":   {func(r *transport.JoinReply) { r.GossipKeys = nil }, "lacks the gossip key"},
		"no keyring":      {func(r *transport.JoinReply) { r.Keyring = nil }, "lacks the keyring"},
		"no gossip":       {func(r *transport.JoinReply) { r.Gossip = nil }, "lacks the gossip addresses"},
		"no servers":      {func(r *transport.JoinReply) { r.Servers = nil }, "lacks the addresses of the servers"},
		"no certificate":  {func(r *transport.JoinReply) { r.Server = nil }, "sent no certificate for server/x1"},
		"another's":       {func(r *transport.JoinReply) { r.Server = r.Agent }, "for another key than that of server/x1"},
		"another root": {func(r *transport.JoinReply) { r.Roots = [][]byte{other.Root().Raw} },
			"is not good under the roots"},
		"a damaged root":    {func(r *transport.JoinReply) { r.Roots = [][]byte{{1}} }, "a damaged root"},
		"not a certificate": {func(r *transport.JoinReply) { r.Agent = [][]byte{{1}} }, "a damaged certificate for agent/x1"},
	} {
		t.Run(name, func(t *testing.T) {
			g.edit = test.edit
			o := g.newcomer(t, pki.RoleServer)
			_, err := o.run(t, 0)
			wantRefusal(t, err, model.CodeCertificateInvalid, test.want, "outspan version")
			if exists(filepath.Join(o.configDir, configFile)) || transport.ManagedDir(o.dataDir).Holds(pki.RoleServer) {
				t.Error("files were written")
			}
		})
	}
}

// A token of another cluster reaches no server, and a machine of another cluster is left alone.
func TestJoinOfAnotherCluster(t *testing.T) {
	g, other := newGate(t), newGate(t)
	o := g.newcomer(t, pki.RoleAgent)
	o.token = other.token(t, pki.RoleAgent)
	_, err := o.run(t, 0)
	wantRefusal(t, err, model.CodeCertificateRefused, "the root of the peer has the key", "check the address")
	if len(g.keys) > 0 {
		t.Error("the token was sent")
	}
	o.token = g.token(t, pki.RoleAgent)
	if _, err := o.run(t, 0); err != nil {
		t.Fatal(err)
	}
	o.token, o.addresses = other.token(t, pki.RoleAgent), []string{other.address}
	_, err = o.run(t, 0)
	wantRefusal(t, err, model.CodeConflict, "belongs to another cluster than the join token", "--config DIR --data DIR")
}

// With systemd, the unit of a worker runs an agent, and the command waits until the agent has registered.
func TestJoinStartsTheUnit(t *testing.T) {
	g := newGate(t)
	o := g.newcomer(t, pki.RoleAgent)
	var log string
	o.system, log = fakeSystemd(t, fmt.Sprintf("[ $1 != start ] || echo 10.0.0.1:7640 >%s/servers", o.dataDir))
	if o.noStart = false; !o.system.usable() {
		t.Skip("only root can use systemd")
	}
	out, err := o.run(t, 0)
	if err != nil || !strings.Contains(out, "agent x1 of the cluster c1 runs at "+o.advertise) {
		t.Errorf("printed %s, %v", out, err)
	}
	unit := fileText(t, filepath.Join(o.system.units, unitName))
	if !strings.Contains(unit, " agent run --config "+o.configDir+"\n") {
		t.Errorf("the unit is\n%s", unit)
	}
	// Now it is a member, which needs no start.
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	if out, err = o.run(t, 0); err != nil || !strings.Contains(out, "member already") || exists(log) {
		t.Errorf("printed %s, %v", out, err)
	}
}

func TestJoinAddresses(t *testing.T) {
	for arg, want := range map[string]string{
		"10.0.0.1": "10.0.0.1:7640", "10.0.0.1:99": "10.0.0.1:99", "s1.lan": "s1.lan:7640", "::1": "[::1]:7640",
		"[::1]": "[::1]:7640", "[::1]:99": "[::1]:99",
		"": "", ":99": "", "a:0": "", "a:70000": "", "a:b": "", "a b": "", "a:1:2": "", "https://a": "", "a/b:1": "",
	} {
		got, err := joinAddresses([]string{arg})
		if want == "" {
			wantRefusal(t, err, model.CodeInvalid, "is not the address of a server", "such as 10.0.0.1")
		} else if err != nil || got[0] != want {
			t.Errorf("%q: got %v, %v; want %s", arg, got, err, want)
		}
	}
	if _, err := joinAddresses(make([]string, maxAddresses+1)); err == nil {
		t.Error("too many addresses are accepted")
	}
}

// From standard input only one line is read, so that a token can be pasted, or stand in a script before other input.
func TestJoinTokenInput(t *testing.T) {
	token := newGate(t).token(t, pki.RoleAgent)
	in := strings.NewReader(token.Reveal() + "\r\nrest\n")
	got, err := readToken(&term.Console{In: in}, "-")
	if rest, _ := io.ReadAll(in); err != nil || got.ID() != token.ID() || string(rest) != "rest\n" {
		t.Errorf("got %v, %v, rest %q", got, err, rest)
	}
	got, err = readToken(&term.Console{In: strings.NewReader(token.Reveal())}, "-")
	if err != nil || got.ID() != token.ID() {
		t.Errorf("without a line break: got %v, %v", got, err)
	}
	if _, err = readToken(&term.Console{In: strings.NewReader(strings.Repeat("x", 1<<20))}, "-"); err == nil {
		t.Error("an endless line is accepted")
	}
}
