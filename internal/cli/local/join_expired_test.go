package local

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A worker is a member from its registration until its certificate has expired. Then it joins again with a new key, and
// keeps its configuration.
func TestJoinAfterTheEnd(t *testing.T) {
	g := newGate(t)
	o := g.newcomer(t, pki.RoleAgent)
	if _, err := o.run(t, 0); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(o.configDir, configFile)
	text := fileText(t, file) + "# edited\n"
	for path, text := range map[string]string{file: text, filepath.Join(o.dataDir, "servers"): "10.0.0.1:7640\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := o.run(t, 0); err != nil || !strings.Contains(out, "member already") || len(g.keys) != 1 {
		t.Fatalf("printed %s after %d requests: %v", out, len(g.keys), err)
	}
	cert, key, err := g.ca.Issue(transport.CertRequest{Role: pki.RoleAgent, Name: "x1", TTL: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	expired, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	managed := transport.ManagedDir(o.dataDir)
	err = managed.Write(transport.ManagedFiles{Pairs: map[pki.Role]tls.Certificate{pki.RoleAgent: expired}})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := o.run(t, 0); err != nil || !strings.Contains(out, "is set up") || len(g.keys) != 2 {
		t.Errorf("printed %s after %d requests: %v", out, len(g.keys), err)
	}
	pair, _, err := managed.Pair(pki.RoleAgent)
	if err != nil || time.Now().After(pair.Leaf.NotAfter) || fileText(t, file) != text {
		t.Errorf("its certificate ends at %s, its configuration is\n%s%v", pair.Leaf.NotAfter, fileText(t, file), err)
	}
}
