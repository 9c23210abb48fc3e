package transport_test

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// managedPair issues a certificate with its key.
func managedPair(t *testing.T, ca *transport.Authority, role pki.Role, name string) tls.Certificate {
	t.Helper()
	cert, key, err := ca.Issue(transport.CertRequest{Role: role, Name: name, TTL: transport.MemberTTL})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func newManaged(t *testing.T) (transport.Managed, *transport.Authority) {
	t.Helper()
	ca := must(transport.NewAuthority("c1", 0))(t)
	m := transport.ManagedDir(filepath.Join(t.TempDir(), "data"))
	err := m.Write(transport.ManagedFiles{CA: ca, GossipKeys: [][]byte{transport.NewGossipKey()},
		Pairs: map[pki.Role]tls.Certificate{
			pki.RoleServer: managedPair(t, ca, pki.RoleServer, "s1"), pki.RoleAgent: managedPair(t, ca, pki.RoleAgent, "s1"),
		}})
	if err != nil {
		t.Fatal(err)
	}
	return m, ca
}

// Server and agent of one process have a certificate each. Keys and the directory are closed to other users.
func TestManagedWrite(t *testing.T) {
	m, _ := newManaged(t)
	for _, role := range []pki.Role{pki.RoleServer, pki.RoleAgent} {
		if _, err := m.Credentials("c1", role, "s1"); err != nil {
			t.Errorf("%s: %v", role, err)
		}
	}
	if _, err := m.GossipKeys(); err != nil {
		t.Error(err)
	}
	if info := must(os.Stat(m.Path()))(t); info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %04o", info.Mode().Perm())
	}
	seen := 0
	for _, path := range m.KeyFiles() {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		if seen++; info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %04o", path, info.Mode().Perm())
		}
	}
	if all := must(os.ReadDir(m.Path()))(t); seen != 4 || len(all) != 7 {
		t.Errorf("%d keys among %d files, want 4 among 7", seen, len(all))
	}
	_, err := m.Credentials("c1", pki.RoleServer, "s2")
	wantCode(t, err, model.CodeCertificateInvalid, `for the name "s1", not "s2"`)
}

// Reload takes up a renewed certificate.
func TestManagedReload(t *testing.T) {
	m, ca := newManaged(t)
	creds := must(m.Credentials("c1", pki.RoleAgent, "s1"))(t)
	before := creds.NotAfter()
	cert, key, err := ca.Issue(transport.CertRequest{Role: pki.RoleAgent, Name: "s1", TTL: 2 * transport.MemberTTL})
	if err != nil {
		t.Fatal(err)
	}
	pair := must(tls.X509KeyPair(cert, key))(t)
	if err := m.Write(transport.ManagedFiles{Pairs: map[pki.Role]tls.Certificate{pki.RoleAgent: pair}}); err != nil {
		t.Fatal(err)
	}
	if err := creds.Reload(); err != nil {
		t.Fatal(err)
	}
	if !creds.NotAfter().After(before) {
		t.Errorf("the certificate still ends at %s", creds.NotAfter())
	}
}

// Write replaces a certificate and its key in three steps. After each of them the process can start, and a further
// Write works.
func TestManagedWriteInterrupted(t *testing.T) {
	for _, done := range []string{"key", "key and certificate"} {
		t.Run(done, func(t *testing.T) {
			m, ca := newManaged(t)
			cert, key, err := ca.Issue(transport.CertRequest{Role: pki.RoleServer, Name: "s1"})
			if err != nil {
				t.Fatal(err)
			}
			next := filepath.Join(m.Path(), "server-key.pem.next")
			writeAll(t, map[string][]byte{next: key})
			if done == "key and certificate" {
				writeAll(t, map[string][]byte{m.CertFile(pki.RoleServer): cert})
			}
			if _, err := m.Credentials("c1", pki.RoleServer, "s1"); err != nil {
				t.Fatal(err)
			}
			if err := m.Write(transport.ManagedFiles{Pairs: map[pki.Role]tls.Certificate{
				pki.RoleServer: managedPair(t, ca, pki.RoleServer, "s1")}}); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Credentials("c1", pki.RoleServer, "s1"); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(next); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left: %v", next, err)
			}
		})
	}
}

// Missing files are refused with a hint for managed machines.
func TestManagedMissing(t *testing.T) {
	m := transport.ManagedDir(t.TempDir())
	_, err := m.Credentials("c1", pki.RoleServer, "s1")
	wantCode(t, err, model.CodeCertificateInvalid, m.RootsFile()+" does not exist")
	wantManagedHint(t, err)
	_, err = m.GossipKeys()
	wantCode(t, err, model.CodeGossipKeyInvalid, "does not exist")
	wantManagedHint(t, err)
	if _, err := os.Stat(m.Path()); err == nil {
		t.Error("reading made the directory")
	}
}

func wantManagedHint(t *testing.T, err error) {
	t.Helper()
	if refusal, ok := errors.AsType[*model.Error](err); !ok || !strings.Contains(refusal.Hint, "outspan up") {
		t.Errorf("got %+v, want a hint that names outspan up", err)
	}
}
