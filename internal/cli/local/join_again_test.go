package local

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/daemon"
	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// town is a cluster with one server, s1. Its processes run in this one, on the files that up and join have written.
type town struct {
	t       *testing.T
	network string // 127.a.b
	dir     string
	ca      *transport.Authority
	api     *client.Client
	stop    map[string]func() // of each machine that runs
}

func newTown(t *testing.T, edit func(*upOptions)) *town {
	t.Helper()
	w := &town{t: t, network: procs.Network(), dir: t.TempDir(), stop: map[string]func(){}}
	o := &upOptions{setupFlags: setupFlags{command: "up", name: "s1", advertise: w.network + ".1",
		configDir: w.conf("s1"), dataDir: w.data("s1"), noStart: true}}
	edit(o)
	if err := runUp(t.Context(), consoleAt(io.Discard, 0), SetupCalls{JoinSteps: noSteps}, o); err != nil {
		t.Fatal(err)
	}
	ca, found, err := transport.ManagedDir(w.data("s1")).Authority()
	if err != nil || !found {
		t.Fatalf("the CA's key: %v, %v", found, err)
	}
	w.ca = ca
	if w.api, err = client.New(client.Config{Addresses: []string{"unix://" + w.data("s1") + "/api.sock"}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for name := range w.stop {
			if name != "s1" {
				w.halt(name)
			}
		}
		w.halt("s1")
		w.api.Close()
	})
	w.run("s1")
	return w
}

func (w *town) conf(name string) string { return filepath.Join(w.dir, name, "conf") }

func (w *town) data(name string) string { return filepath.Join(w.dir, name, "data") }

func (w *town) files(name string) transport.Managed { return transport.ManagedDir(w.data(name)) }

// run starts the process of a machine.
func (w *town) run(name string) {
	w.t.Helper()
	cfg, err := config.Load(w.conf(name))
	if err != nil {
		w.t.Fatal(err)
	}
	site := "log {\n  level = \"error\"\n}\n"
	if cfg.Agent != nil {
		site += "agent {\n  cgroup_root = \"outspan-test-join\"\n}\n"
	}
	if err := os.WriteFile(filepath.Join(w.conf(name), "site.hcl"), []byte(site), 0o600); err != nil {
		w.t.Fatal(err)
	}
	program := daemon.Program{Version: "test", Exit: func(code int) { w.t.Errorf("%s exits with %d", name, code) }}
	process := program.RunServer
	if cfg.Server == nil {
		process = program.RunAgent
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- process(ctx, []string{w.conf(name)}) }()
	w.stop[name] = func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("%s: %v", name, err)
		}
	}
}

func (w *town) halt(name string) {
	if stop, ok := w.stop[name]; ok {
		stop()
		delete(w.stop, name)
	}
}

// join returns the options with which a machine joins at s1, with a new token.
func (w *town) join(name string, role pki.Role, uses int) *joinOptions {
	w.t.Helper()
	var token pki.JoinToken
	w.eventually("a token is made", func(ctx context.Context) error {
		got, err := w.api.Tokens.Create(ctx, api.TokenBody{Role: string(role), Uses: &uses}, client.WriteOptions{})
		if err == nil {
			token, err = pki.ParseJoinToken(got.Value.Text)
		}
		return err
	})
	return &joinOptions{server: role == pki.RoleServer, token: token, addresses: []string{w.network + ".1:7640"},
		version: "1", setupFlags: setupFlags{command: "join", configDir: w.conf(name), dataDir: w.data(name),
			noStart: true}}
}

// worker lets the machine n1 join, and starts its agent.
func (w *town) worker() (epoch uint64) {
	w.t.Helper()
	o := w.join("n1", pki.RoleAgent, 1)
	o.name, o.advertise = "n1", w.network+".2"
	w.must(o)
	w.run("n1")
	return w.active("n1", 0)
}

func (w *town) must(o *joinOptions) string {
	w.t.Helper()
	out, err := o.run(w.t, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// active waits until a node is active with an epoch after the given one, and returns its epoch.
func (w *town) active(name string, after uint64) (epoch uint64) {
	w.t.Helper()
	w.eventually(name+" is active", func(ctx context.Context) error {
		got, err := w.api.Nodes.Get(ctx, name, client.ReadOptions{})
		if err != nil {
			return err
		}
		if epoch = got.Value.Epoch; got.Value.State != "active" || epoch <= after {
			return fmt.Errorf("it is %s with epoch %d", got.Value.State, epoch)
		}
		return nil
	})
	return epoch
}

func (w *town) eventually(what string, ok func(context.Context) error) {
	w.t.Helper()
	if err := procs.Until(w.t.Context(), time.Minute, 50*time.Millisecond, ok); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// expire replaces the certificate of a machine by one for the same key that has expired.
func (w *town) expire(name string, role pki.Role) {
	w.t.Helper()
	pair, _, err := w.files(name).Pair(role)
	if err != nil {
		w.t.Fatal(err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		w.t.Fatalf("the key is a %T", pair.PrivateKey)
	}
	cert, err := w.ca.Sign(pki.Request{Role: role, Name: name, PublicKey: &key.PublicKey,
		AdmittedAt: pki.AdmittedAt(pair.Leaf)}, time.Nanosecond)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.files(name).Write(transport.ManagedFiles{Pairs: map[pki.Role]tls.Certificate{
		role: {Certificate: [][]byte{cert.Raw}, PrivateKey: key}}}); err != nil {
		w.t.Fatal(err)
	}
}

// A worker whose certificate has expired, and that may not return by itself, joins again with a new token, while its
// agent runs: the agent uses the new certificate, and the node is the same.
func TestExpiredWorkerJoinsAgain(t *testing.T) {
	w := newTown(t, func(o *upOptions) { o.noAgent = true })
	epoch := w.worker()
	if _, err := w.api.Settings.Set(t.Context(), map[string]any{"rejoin_grace": "0s"},
		client.ChangeOptions{}); err != nil {
		t.Fatal(err)
	}
	w.halt("n1")
	w.expire("n1", pki.RoleAgent)
	before, _, _ := w.files("n1").Pair(pki.RoleAgent)
	node := fileText(t, filepath.Join(w.data("n1"), "node"))
	w.run("n1")
	out := w.must(w.join("n1", pki.RoleAgent, 1))
	if !strings.Contains(out, "agent n1 of the cluster outspan has a new certificate, and its process uses it") {
		t.Errorf("printed %s", out)
	}
	after, _, _ := w.files("n1").Pair(pki.RoleAgent)
	if string(pki.KeyHash(before.Leaf)) != string(pki.KeyHash(after.Leaf)) || !after.Leaf.NotAfter.After(time.Now()) {
		t.Errorf("the certificate ends at %s", after.Leaf.NotAfter)
	}
	w.active("n1", epoch)
	if now := fileText(t, filepath.Join(w.data("n1"), "node")); now != node {
		t.Errorf("the node %s became %s", node, now)
	}
	if out := w.must(w.join("n1", pki.RoleAgent, 1)); !strings.Contains(out, "member already") {
		t.Errorf("printed %s", out)
	}
	_, err := w.join("n1", pki.RoleServer, 1).run(t, 0)
	wantRefusal(t, err, model.CodeConflict, "makes this machine agent n1",
		"remove that file to begin again as another role")
}

// The token of a worker is of no use to a server without an agent. The refusal says how the server gets one. Then the
// same command brings the certificate of the agent, and the server is a worker after its next start.
func TestServerWithoutAgentJoinsAsWorker(t *testing.T) {
	w := newTown(t, func(o *upOptions) { o.noAgent = true })
	o := w.join("s1", pki.RoleAgent, 1)
	_, err := o.run(t, 0)
	file := filepath.Join(w.conf("s1"), "agent.hcl")
	wantRefusal(t, err, model.CodeConflict, "makes this machine server s1, which runs no agent",
		"agent {} into "+file+", and run the same command again")
	if w.files("s1").Holds(pki.RoleAgent) {
		t.Error("it has a certificate of an agent")
	}
	if err := os.WriteFile(file, []byte("agent {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.must(o)
	w.halt("s1")
	w.run("s1")
	w.active("s1", 0)
}

// A worker that was revoked joins again with a token that was made after that, and a new key. Nothing is removed
// before.
func TestRevokedWorkerJoinsAgain(t *testing.T) {
	w := newTown(t, func(o *upOptions) { o.noAgent = true })
	epoch := w.worker()
	before, _, _ := w.files("n1").Pair(pki.RoleAgent)
	old := w.join("n1", pki.RoleAgent, 1)
	if _, err := w.api.Trust.RevokeNode(t.Context(), "n1", api.RevokeBody{}, client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := old.run(t, 0)
	wantRefusal(t, err, model.CodeTokenRevoked, "is older than the revocation of agent:n1", "outspan token create")
	w.must(w.join("n1", pki.RoleAgent, 1))
	after, _, _ := w.files("n1").Pair(pki.RoleAgent)
	if string(pki.KeyHash(before.Leaf)) == string(pki.KeyHash(after.Leaf)) {
		t.Error("the key was revoked, and is in use again")
	}
	w.active("n1", epoch)
}

// A worker that was off while the CA was replaced without it is told how to return. It returns as the same node.
func TestLeftBehindWorkerJoinsAgain(t *testing.T) {
	w := newTown(t, func(o *upOptions) { o.noAgent = true })
	epoch := w.worker()
	w.halt("n1")
	node := fileText(t, filepath.Join(w.data("n1"), "node"))
	if _, err := w.api.CA.Rotate(t.Context(), api.RotateCABody{Force: true, Names: []string{"n1"}},
		client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the CA is replaced", func(ctx context.Context) error {
		got, err := w.api.CA.Status(ctx, client.ReadOptions{})
		if err == nil && (got.Value.Rotation != nil || len(got.Value.CAs) != 1) {
			err = fmt.Errorf("%d CAs, %+v", len(got.Value.CAs), got.Value.Rotation)
		}
		return err
	})
	if _, err := w.api.Trust.RevokeNode(t.Context(), "n1", api.RevokeBody{}, client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	o := w.join("n1", pki.RoleAgent, 1)
	_, err := o.run(t, 0)
	wantRefusal(t, err, model.CodeConflict, "belongs to another cluster than the join token",
		"remove "+w.files("n1").Path())
	if err := os.RemoveAll(w.files("n1").Path()); err != nil {
		t.Fatal(err)
	}
	w.must(o)
	w.run("n1")
	w.active("n1", epoch)
	if now := fileText(t, filepath.Join(w.data("n1"), "node")); now != node {
		t.Errorf("the node %s became %s", node, now)
	}
}

// A machine that is server and agent gets a certificate for its agent by an agent's token, also while it is the only
// server of the cluster: after its agent was revoked, and if the agent's certificate is lost.
func TestServerGetsItsAgentBack(t *testing.T) {
	w := newTown(t, func(*upOptions) {})
	epoch := w.active("s1", 0)
	if _, err := w.api.Trust.RevokeNode(t.Context(), "s1", api.RevokeBody{}, client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	server := fileText(t, w.files("s1").CertFile(pki.RoleServer))
	w.must(w.join("s1", pki.RoleAgent, 1))
	epoch = w.active("s1", epoch)
	w.halt("s1")
	if err := os.Remove(w.files("s1").CertFile(pki.RoleAgent)); err != nil {
		t.Fatal(err)
	}
	w.run("s1")
	w.eventually("the lost key is revoked", func(ctx context.Context) error {
		_, err := w.api.Trust.RevokeNode(ctx, "s1", api.RevokeBody{}, client.WriteOptions{})
		return err
	})
	out := w.must(w.join("s1", pki.RoleAgent, 1))
	if !strings.Contains(out, "next: stop its process, then start it again with: outspan server run --config ") {
		t.Errorf("printed %s", out)
	}
	if now := fileText(t, w.files("s1").CertFile(pki.RoleServer)); now != server {
		t.Error("the server has another certificate")
	}
	w.halt("s1")
	w.run("s1")
	w.active("s1", epoch)
}

// A join that ended between the certificates of a server and its agent goes on with the same token.
func TestJoinBetweenTwoCertificates(t *testing.T) {
	w := newTown(t, func(o *upOptions) { o.noAgent = true })
	o := w.join("s2", pki.RoleServer, 1)
	o.name, o.advertise = "s2", w.network+".2"
	w.must(o)
	// As after a power cut before the second certificate: its key has no certificate yet.
	files := w.files("s2")
	key := filepath.Join(files.Path(), "agent-key.pem")
	err := errors.Join(os.Remove(files.CertFile(pki.RoleAgent)), os.Rename(key, key+".next"))
	if err != nil {
		t.Fatal(err)
	}
	w.must(o)
	cfg, err := config.Load(o.configDir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := daemon.CheckFiles(cfg); err != nil {
		t.Error(err)
	}
}

// A server that was removed and revoked comes back with an empty data directory. With its data it is told so, before
// the token is spent.
func TestRevokedServerJoinsAgain(t *testing.T) {
	w := newTown(t, func(o *upOptions) { o.noAgent = true })
	o := w.join("s2", pki.RoleServer, 1)
	o.name, o.advertise = "s2", w.network+".2"
	w.must(o)
	w.run("s2")
	voter := func(ctx context.Context) error {
		members, err := w.api.Members.List(ctx, client.ListOptions{})
		if err != nil {
			return err
		}
		for _, one := range members.Items {
			if one.Name == "s2" && one.Voter {
				return nil
			}
		}
		return errors.New("s2 has no vote")
	}
	w.eventually("s2 votes", voter)
	epoch := w.active("s2", 0)
	_, err := w.api.Members.Remove(t.Context(), "s2", client.RemoveOptions{})
	if err == nil {
		_, err = w.api.Trust.RevokeServer(t.Context(), "s2", api.RevokeBody{}, client.RevokeServerOptions{})
	}
	if err == nil {
		_, err = w.api.Trust.RevokeNode(t.Context(), "s2", api.RevokeBody{}, client.WriteOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.halt("s2")
	again := w.join("s2", pki.RoleServer, 1)
	_, err = again.run(t, 0)
	wantRefusal(t, err, model.CodeConflict, "the servers refuse the certificate of this server: it was revoked",
		"stop it, remove "+w.data("s2"))
	if err := os.RemoveAll(w.data("s2")); err != nil {
		t.Fatal(err)
	}
	again.refused = nil // as in another call of the command
	w.must(again)
	w.run("s2")
	w.eventually("s2 votes again", voter)
	w.active("s2", epoch)
}
