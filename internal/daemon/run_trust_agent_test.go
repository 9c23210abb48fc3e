package daemon

import (
	"crypto/ecdsa"
	"crypto/tls"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A managed server runs without the agent of its machine if the agent has no usable certificate.
func TestServerRunsWithoutItsAgent(t *testing.T) {
	m := &managed{t: t}
	m.found("s1")
	m.stop[0]()
	file := transport.ManagedDir(m.dir("s1")).CertFile(pki.RoleAgent)
	if err := os.WriteFile(file, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := m.start("s1", "server {\n  bootstrap_expect = 1\n}\nagent {\n  allow_root = true\n}\n")
	eventually(t, "the server leads", func() bool {
		_, self, ok := s.cluster.Leader()
		return ok && self
	})
	if len(s.p.parts) != 1 {
		t.Errorf("the process has %d parts", len(s.p.parts))
	}
}

// A managed agent whose certificate has expired starts, and registers as soon as its files have a good one. The servers
// see its new certificate, so the key before ends.
func TestExpiredAgentStarts(t *testing.T) {
	m := &managed{t: t}
	first := m.found("s1")
	eventually(t, "the cluster is managed", func() bool { return first.machine.Current().Managed() })
	m.join(first, pki.RoleAgent, "n1")
	dir := transport.ManagedDir(m.dir("n1"))
	good, _, err := dir.Pair(pki.RoleAgent)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := m.ca.Issue(transport.CertRequest{Role: pki.RoleAgent, Name: "n1", TTL: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	expired := must(tls.X509KeyPair(cert, key))(t)
	m.write("n1", transport.ManagedFiles{Pairs: map[pki.Role]tls.Certificate{pki.RoleAgent: expired}})
	m.start("n1", fmt.Sprintf("agent {\n  allow_root = true\n  servers = [%q]\n}\n", first.p.own))
	m.write("n1", transport.ManagedFiles{Pairs: map[pki.Role]tls.Certificate{pki.RoleAgent: good}})
	eventually(t, "the node is registered", func() bool {
		_, refusal := first.machine.Current().Finder(nil).NamedNode("n1")
		return refusal == nil
	})
	row, _ := first.machine.Current().TrustMemberOf(model.Subject{Kind: model.SubjectAgent, Name: "n1"})
	if !row.Counts(pki.KeyHash(good.Leaf)) {
		t.Errorf("the row is %+v", row)
	}
}

// A managed agent whose certificate has expired returns without a token, and registers. The key before ends.
func TestExpiredAgentReturns(t *testing.T) {
	m := &managed{t: t}
	first := m.found("s1")
	eventually(t, "the cluster is managed", func() bool { return first.machine.Current().Managed() })
	m.join(first, pki.RoleAgent, "n1")
	good, _, err := transport.ManagedDir(m.dir("n1")).Pair(pki.RoleAgent)
	if err != nil {
		t.Fatal(err)
	}
	der := must(pki.RequestFor(good.PrivateKey.(*ecdsa.PrivateKey), pki.RoleAgent, "n1", nil))(t)
	request := must(pki.ParseRequest(der, pki.RoleAgent))(t)
	request.AdmittedAt = pki.AdmittedAt(good.Leaf)
	cert := must(m.ca.Sign(request, time.Nanosecond))(t)
	m.write("n1", transport.ManagedFiles{Pairs: map[pki.Role]tls.Certificate{
		pki.RoleAgent: {Certificate: [][]byte{cert.Raw}, PrivateKey: good.PrivateKey}}})
	m.start("n1", fmt.Sprintf("agent {\n  allow_root = true\n  servers = [%q]\n}\n", first.p.own))
	eventually(t, "the node is registered, and the key before ended", func() bool {
		state := first.machine.Current()
		_, refusal := state.Finder(nil).NamedNode("n1")
		row, _ := state.TrustMemberOf(model.Subject{Kind: model.SubjectAgent, Name: "n1"})
		return refusal == nil && !row.Counts(pki.KeyHash(good.Leaf))
	})
}
