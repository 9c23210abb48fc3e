package trust_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// Servers that had certificate files get the first CA once all of them are managed. The leader needs neither the file
// with the CA's key nor a keyring. The agents of the nodes are members with the first key that they show.
func TestFoundAdopts(t *testing.T) {
	r := newRig(t)
	s1 := r.found(time.Hour) // has the key of the CA and a keyring, like the server with ca adopt --ca-key
	ca, _, err := transport.ManagedDir(s1.dir).Authority()
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	r.mu.Lock()
	r.leader, r.dead, r.addresses = "s2", []string{"s3"}, []string{"s1", "s2"}
	r.lost = func(to, _ string) error {
		if to == "s3" {
			asked.Add(1)
			return errors.New("it is not managed")
		}
		return nil
	}
	r.mu.Unlock()
	s2 := r.onFiles("s2", ca, s1)
	s2.do(registered("n1"))
	s1.run()
	s2.run()
	s2.leading()
	eventually(t, "the leader asks s3 more than once", func() bool { return asked.Load() > 4 })
	if s2.machine.Current().Managed() {
		t.Fatal("the state has a CA before all servers are managed")
	}
	agent := leafFor(t, ca, pki.RoleAgent, "n1")
	if err := s2.engine.Admit(pki.Identity{Role: pki.RoleAgent, Name: "n1"}, agent); err != nil {
		t.Errorf("before the state has a CA: %v", err)
	}

	r.mu.Lock()
	r.dead, r.lost = nil, nil
	r.mu.Unlock()
	s3 := r.onFiles("s3", ca, s1)
	s3.run()
	eventually(t, "the state has a CA", func() bool { return s3.machine.Current().Managed() })
	eventually(t, "the file with the key is removed", func() bool {
		_, err := os.Stat(transport.ManagedDir(s1.dir).CAKeyFile())
		return errors.Is(err, os.ErrNotExist)
	})
	state := s3.machine.Current()
	if row, _ := state.ActiveKey(model.KeyCA); string(row.Public) != string(ca.Root().Raw) {
		t.Error("the state has another CA than the files")
	}
	for _, s := range []*site{s1, s2, s3} {
		if err := s.engine.Admit(pki.Identity{Role: pki.RoleAgent, Name: "n1"}, agent); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		eventually(t, s.name+" is a member", func() bool {
			_, ok := s.machine.Current().TrustMemberOf(who(model.SubjectServer, s.name))
			return ok
		})
	}
	wantCode(t, s3.engine.Admit(pki.Identity{Role: pki.RoleAgent, Name: "n9"}, leafFor(t, ca, pki.RoleAgent, "n9")),
		model.CodeCertificateRefused)
	s3.engine.Proved(pki.Identity{Role: pki.RoleAgent, Name: "n1"}, agent)
	eventually(t, "only the key that n1 has shown counts", func() bool {
		row, _ := s1.machine.Current().TrustMemberOf(who(model.SubjectAgent, "n1"))
		return !row.AnyKey && row.Counts(pki.KeyHash(agent))
	})
	if n := r.founding(); n != 1 {
		t.Errorf("the CA is put %d times", n)
	}
}

// onFiles starts a server on the files that ca adopt leaves without the CA's key. They are of the CA and the gossip
// pool of another server.
func (r *rig) onFiles(name string, ca *transport.Authority, of *site) *site {
	r.t.Helper()
	dir := r.t.TempDir()
	cert, key, err := ca.Issue(transport.CertRequest{Role: pki.RoleServer, Name: name, TTL: time.Hour})
	if err != nil {
		r.t.Fatal(err)
	}
	files := transport.ManagedFiles{Roots: [][]byte{ca.Root().Raw},
		GossipKeys: [][]byte{must(transport.ManagedDir(of.dir).GossipKeys())(r.t)[0]},
		Pairs:      map[pki.Role]tls.Certificate{pki.RoleServer: must(tls.X509KeyPair(cert, key))(r.t)}}
	if err := transport.ManagedDir(dir).Write(files); err != nil {
		r.t.Fatal(err)
	}
	return r.start(name, dir, time.Hour)
}

func leafFor(t *testing.T, ca *transport.Authority, role pki.Role, name string) *x509.Certificate {
	t.Helper()
	text, _, err := ca.Issue(transport.CertRequest{Role: role, Name: name, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	return must(x509.ParseCertificate(block.Bytes))(t)
}
