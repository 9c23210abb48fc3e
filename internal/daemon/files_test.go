package daemon

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// On a managed machine the certificate of each role is checked, and so is the gossip key. Keys that every user can read
// are named. An expired certificate is no error.
func TestCheckFilesOfAManagedMachine(t *testing.T) {
	c := &config.Config{Name: "s1", Cluster: "c1", DataDir: t.TempDir(), TLS: config.TLS{Managed: true},
		Server: &config.Server{}, Agent: &config.Agent{}}
	if _, err := CheckFiles(c); err == nil {
		t.Fatal("a machine without files passes")
	}
	ca, err := transport.NewAuthority(c.Cluster, 0)
	if err != nil {
		t.Fatal(err)
	}
	managed := transport.ManagedDir(c.DataDir)
	write := func(role pki.Role, ttl time.Duration) {
		cert, key, err := ca.Issue(transport.CertRequest{Role: role, Name: c.Name, TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		files := transport.ManagedFiles{CA: ca, Pairs: map[pki.Role]tls.Certificate{role: pair}}
		if role == pki.RoleAgent {
			files.GossipKeys = [][]byte{transport.NewGossipKey()}
		}
		if err := managed.Write(files); err != nil {
			t.Fatal(err)
		}
	}
	write(pki.RoleServer, transport.MemberTTL)
	if _, err := CheckFiles(c); err == nil {
		t.Fatal("a machine without the certificate of its agent passes")
	}
	write(pki.RoleAgent, transport.MemberTTL)
	ring := filepath.Join(c.DataDir, keyring.FileName)
	for _, path := range []string{managed.CAKeyFile(), ring} {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := CheckFiles(c)
	if err != nil || len(got.Ends) != 2 || !slices.Equal(got.ReadableKeys, []string{managed.CAKeyFile(), ring}) {
		t.Errorf("got %+v, %v", got, err)
	}
	write(pki.RoleServer, time.Nanosecond)
	if got, err = CheckFiles(c); err != nil || time.Now().Before(got.Ends[pki.RoleServer]) {
		t.Errorf("with an expired certificate of the server, got %+v, %v", got, err)
	}
}

// The CA of the provider at which people sign in is read as at the start.
func TestCheckFilesOfASignIn(t *testing.T) {
	c := &config.Config{Name: "s1", Cluster: "c1", Server: &config.Server{}, TLS: config.TLS{Dir: t.TempDir()},
		Auth: config.Auth{OIDC: &config.OIDC{Issuer: "https://id.example.org", ClientID: "outspan"}}}
	if _, err := CheckFiles(c); err != nil {
		t.Error(err)
	}
	c.Auth.OIDC.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	if _, err := CheckFiles(c); err == nil {
		t.Error("a CA that does not exist passes")
	}
	if err := os.WriteFile(c.Auth.OIDC.CAFile, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := CheckFiles(c); err == nil {
		t.Error("a CA without a certificate passes")
	}
}
