package transport_test

import (
	"crypto/ecdsa"
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A machine asks with one key until its certificate is written. Then the next request has a new key.
func TestRequestKey(t *testing.T) {
	ca := authority(t, "c1")
	dir := transport.ManagedDir(t.TempDir())
	key := must(dir.RequestKey(pki.RoleAgent))(t)
	if again := must(dir.RequestKey(pki.RoleAgent))(t); !again.Equal(key) {
		t.Error("the second request has another key")
	}
	if server := must(dir.RequestKey(pki.RoleServer))(t); server.Equal(key) {
		t.Error("both roles have the same key")
	}
	next := filepath.Join(dir.Path(), "agent-key.pem.next")
	if info := must(os.Stat(next))(t); info.Mode().Perm() != 0o600 {
		t.Errorf("the key has the mode %v", info.Mode())
	}
	if dir.Holds(pki.RoleAgent) {
		t.Error("there is a certificate")
	}
	pair := issued(t, ca, key)
	if off := time.Since(transport.ServerClock(pair.Leaf)).Abs(); off > time.Minute {
		t.Errorf("the clock of the server differs by %s", off)
	}
	if err := dir.Write(transport.ManagedFiles{Roots: [][]byte{ca.Root().Raw},
		Pairs: map[pki.Role]tls.Certificate{pki.RoleAgent: pair}}); err != nil {
		t.Fatal(err)
	}
	if !dir.Holds(pki.RoleAgent) || dir.Holds(pki.RoleServer) {
		t.Error("the certificates that are there are not seen")
	}
	if later := must(dir.RequestKey(pki.RoleAgent))(t); !later.Equal(key) {
		t.Error("the request for another certificate has another key")
	}
	later := must(dir.NewRequestKey(pki.RoleAgent))(t)
	if again := must(dir.RequestKey(pki.RoleAgent))(t); later.Equal(key) || !again.Equal(later) {
		t.Error("the request of a revoked member has the old key")
	}
	if !dir.Holds(pki.RoleAgent) {
		t.Error("the next request hides the certificate")
	}
	if err := os.WriteFile(next, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	must(dir.RequestKey(pki.RoleAgent))(t)
}

func issued(t *testing.T, ca *transport.Authority, key *ecdsa.PrivateKey) tls.Certificate {
	t.Helper()
	der := must(pki.RequestFor(key, pki.RoleAgent, "n1", nil))(t)
	cert := must(ca.Sign(must(pki.ParseRequest(der, pki.RoleAgent))(t), time.Hour))(t)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func TestManagedRoots(t *testing.T) {
	dir := transport.ManagedDir(t.TempDir())
	if roots, err := dir.Roots(); err != nil || roots != nil {
		t.Errorf("without a file: %v, %v", roots, err)
	}
	first, second := authority(t, "c1"), authority(t, "c1")
	if err := dir.Write(transport.ManagedFiles{Roots: [][]byte{first.Root().Raw, second.Root().Raw}}); err != nil {
		t.Fatal(err)
	}
	if roots, err := dir.Roots(); err != nil || len(roots) != 2 || !roots[0].Equal(first.Root()) ||
		!roots[1].Equal(second.Root()) {
		t.Errorf("got %d roots, %v", len(roots), err)
	}
	if err := os.WriteFile(dir.RootsFile(), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := dir.Roots()
	wantCode(t, err, model.CodeCertificateInvalid, dir.RootsFile())
}
