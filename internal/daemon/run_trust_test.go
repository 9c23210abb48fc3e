package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A cluster with tls { managed = true } grows by tokens: the first machine removes the file with the CA's key, a server
// and an agent join over the TLS port, the agent renews by way of the server that does not lead, and after its
// revocation it is refused.
func TestManagedCluster(t *testing.T) {
	m := &managed{t: t}
	first := m.found("s1")
	eventually(t, "the file with the CA's key is removed", func() bool {
		_, err := os.Stat(transport.ManagedDir(first.p.cfg.DataDir).CAKeyFile())
		return errors.Is(err, os.ErrNotExist)
	})
	second := m.join(first, pki.RoleServer, "s2")
	eventually(t, "the second server has caught up", func() bool {
		leader, self, ok := second.cluster.Leader()
		_, known := second.machine.Current().TrustMemberOf(model.Subject{Kind: model.SubjectServer, Name: "s2"})
		return ok && !self && leader.Name == "s1" && known
	})
	m.join(second, pki.RoleAgent, "n1")
	eventually(t, "the second server knows the agent", func() bool {
		_, known := second.machine.Current().TrustMemberOf(model.Subject{Kind: model.SubjectAgent, Name: "n1"})
		return known
	})
	agent := must(transport.ManagedDir(m.dir("n1")).Credentials("c1", pki.RoleAgent, "n1"))(t)
	client := must(transport.NewClient(transport.ClientConfig{Credentials: agent,
		Addresses: []string{"https://" + second.p.own}}))(t)
	der, key, err := pki.NewRequest(pki.RoleAgent, "n1", nil)
	if err != nil {
		t.Fatal(err)
	}
	reply := must(client.Renew(t.Context(), transport.RenewRequest{Request: der}))(t)
	if len(reply.Chain) != 1 || len(reply.Roots) != 1 || len(reply.Servers) != 2 {
		t.Errorf("the reply has %d certificates, %d roots, servers %v", len(reply.Chain), len(reply.Roots), reply.Servers)
	}
	n1 := model.Subject{Kind: model.SubjectAgent, Name: "n1"}
	row, _ := first.machine.Current().TrustMemberOf(n1)
	if row.PreviousKey == nil {
		t.Error("the renewal left no trace in the row of the agent")
	}
	m.write("n1", transport.ManagedFiles{Pairs: map[pki.Role]tls.Certificate{
		pki.RoleAgent: {Certificate: reply.Chain, PrivateKey: key}}})
	if err := agent.Reload(); err != nil {
		t.Fatal(err)
	}
	must(client.Renew(t.Context(), transport.RenewRequest{}))(t) // by a connection with the new certificate
	if row, _ = first.machine.Current().TrustMemberOf(n1); row.PreviousKey != nil {
		t.Error("the previous key still counts, although the agent has the new certificate")
	}
	m.submit(first, &fsm.MemberRevoke{Subject: n1})
	eventually(t, "the agent is refused", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := client.Renew(ctx, transport.RenewRequest{Request: der})
		return err != nil
	})
}

// A managed server whose certificate expired while it was off starts again, also without a snapshot.
func TestExpiredServerStarts(t *testing.T) {
	m := &managed{t: t}
	first := m.found("s1")
	eventually(t, "the file with the CA's key is removed", func() bool {
		_, err := os.Stat(transport.ManagedDir(first.p.cfg.DataDir).CAKeyFile())
		return errors.Is(err, os.ErrNotExist)
	})
	m.stop[0]()
	dir := transport.ManagedDir(m.dir("s1"))
	expired := map[pki.Role]tls.Certificate{pki.RoleServer: m.issue("s1", time.Nanosecond)}
	m.write("s1", transport.ManagedFiles{Pairs: expired})
	if _, err := dir.Credentials("c1", pki.RoleServer, "s1"); err == nil {
		t.Fatal("the certificate has not expired")
	}
	m.start("s1", "server {\n  bootstrap_expect = 1\n}\n")
	if must(dir.Credentials("c1", pki.RoleServer, "s1"))(t).NotAfter().Before(time.Now().Add(time.Hour)) {
		t.Error("the certificate was not renewed")
	}
}

// managed makes processes of a cluster that issues its certificates.
type managed struct {
	t    *testing.T
	root string
	ca   *transport.Authority
	stop []func() // of each process

	leader *serverPart // the first machine
}

func (m *managed) dir(name string) string {
	if m.root == "" {
		m.root = m.t.TempDir()
	}
	return filepath.Join(m.root, name)
}

// found makes the files of a first machine, as outspan up does, and starts its server.
func (m *managed) found(name string) *serverPart {
	m.t.Helper()
	m.ca = must(transport.NewAuthority("c1", 0))(m.t)
	m.write(name, transport.ManagedFiles{CA: m.ca, GossipKeys: [][]byte{transport.NewGossipKey()},
		Pairs: map[pki.Role]tls.Certificate{pki.RoleServer: m.issue(name, transport.MemberTTL)}})
	must(keyring.Create(filepath.Join(m.dir(name), keyring.FileName)))(m.t)
	m.leader = m.start(name, "server {\n  bootstrap_expect = 1\n}\n")
	return m.leader
}

func (m *managed) issue(name string, life time.Duration) tls.Certificate {
	m.t.Helper()
	cert, key, err := m.ca.Issue(transport.CertRequest{Role: pki.RoleServer, Name: name, TTL: life})
	if err != nil {
		m.t.Fatal(err)
	}
	return must(tls.X509KeyPair(cert, key))(m.t)
}

func (m *managed) write(name string, files transport.ManagedFiles) {
	m.t.Helper()
	if err := os.MkdirAll(m.dir(name), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := transport.ManagedDir(m.dir(name)).Write(files); err != nil {
		m.t.Fatal(err)
	}
}

// join lets a machine join by way of a server, and starts it if it is a server.
func (m *managed) join(by *serverPart, role pki.Role, name string) *serverPart {
	m.t.Helper()
	ca, _ := by.machine.Current().ActiveKey(model.KeyCA)
	token := must(pki.NewJoinToken(role, must(x509.ParseCertificate(ca.Public))(m.t)))(m.t)
	verifier := token.Verifier()
	m.submit(m.leader, &fsm.TokenCreate{ID: model.TokenID(token.ID()), Role: string(role), Verifier: verifier[:],
		TTL: model.Hour, Uses: 1})
	der, key, err := pki.NewRequest(role, name, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	q := transport.JoinRequest{Agent: der}
	if role == pki.RoleServer {
		q = transport.JoinRequest{Server: der, Address: "127.0.0.1:7640"}
	}
	reply, _, err := transport.Join(m.t.Context(), []string{by.p.own}, token, q)
	if err != nil {
		m.t.Fatal(err)
	}
	chain := reply.Agent
	if role == pki.RoleServer {
		chain = reply.Server
	}
	m.write(name, transport.ManagedFiles{Roots: reply.Roots, GossipKeys: reply.GossipKeys,
		Pairs: map[pki.Role]tls.Certificate{role: {Certificate: chain, PrivateKey: key}}})
	if role != pki.RoleServer {
		return nil
	}
	var keys []keyring.Key
	for _, b := range reply.Keyring {
		keys = append(keys, must(keyring.ParseKey(b))(m.t))
	}
	must(keyring.Create(filepath.Join(m.dir(name), keyring.FileName), keys...))(m.t)
	return m.start(name, fmt.Sprintf("server {\n  bootstrap_expect = 0\n  retry_join = [%q]\n}\n", reply.Gossip[0]))
}

// start starts a server on its files. It runs until its stop is called, or the test ends.
func (m *managed) start(name, block string) *serverPart {
	m.t.Helper()
	dir, file := m.dir(name), m.dir(name+".hcl")
	text := fmt.Sprintf("name = %q\ncluster = \"c1\"\ndata_dir = %q\n%stls {\n  managed = true\n}\n"+
		"listen {\n  address = \"127.0.0.1\"\n  port = 0\n  gossip_port = 0\n}\nadvertise {\n  address = \"127.0.0.1\"\n}\n"+
		"log {\n  level = \"error\"\n}\n", name, dir, block)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	cfg := must(config.Load(file))(m.t)
	p := &process{program: Program{Version: "test"}, cfg: cfg, log: newLogger(cfg), registry: must(newRegistry())(m.t),
		ends: newCertificateEnd()}
	if err := p.open(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx, nil, nil) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			m.t.Error(err)
		}
	})
	m.t.Cleanup(stop)
	m.stop = append(m.stop, stop)
	s, _ := p.parts[0].(*serverPart) // nil for an agent alone
	return s
}

// submit commits a command on the server that leads.
func (m *managed) submit(s *serverPart, c fsm.Command) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 20*time.Second)
	defer cancel()
	if err := (trustCluster{s}).Submit(ctx, []fsm.Command{c}); err != nil {
		m.t.Fatal(err)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// eventually calls ok until it returns true, and fails the test after 30 s.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen in 30 s", what)
		}
	}
}
