package transport_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

func modes(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, e := range must(os.ReadDir(dir))(t) {
		got[e.Name()] = must(e.Info())(t).Mode().String()
	}
	return got
}

func TestCreateFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	must(transport.CreateCA(dir, transport.CAOptions{Cluster: "c1"}))(t)
	server := must(transport.IssueCert(dir, transport.CertRequest{
		Role: pki.RoleServer, Name: "s1", Hosts: []string{"s1.lan", "10.0.0.1"}, TTL: time.Hour,
	}, false))(t)
	must(transport.IssueCert(dir, transport.CertRequest{Role: pki.RoleCLI, Name: "alice"}, false))(t)
	want := map[string]string{
		"ca.pem": "-rw-r--r--", "ca-key.pem": "-rw-------",
		"server-s1.pem": "-rw-r--r--", "server-s1-key.pem": "-rw-------",
		"cli-alice.pem": "-rw-r--r--", "cli-alice-key.pem": "-rw-------",
	}
	if d := cmp.Diff(want, modes(t, dir)); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	if got := must(os.Stat(dir))(t).Mode().Perm(); got != 0o700 {
		t.Errorf("directory has mode %04o, want 0700", got)
	}

	leaf := must(tls.LoadX509KeyPair(server.Cert, server.Key))(t).Leaf
	if key, ok := leaf.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		t.Errorf("the key is a %T, want ECDSA P-256", leaf.PublicKey)
	}
	if d := cmp.Diff([]string{"server.outspan", "localhost", "s1.lan"}, leaf.DNSNames); d != "" {
		t.Errorf("DNS names (-want +got):\n%s", d)
	}
	if err := leaf.VerifyHostname("10.0.0.1"); err != nil {
		t.Error(err)
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != "outspan://c1/server/s1" {
		t.Errorf("URIs are %v", leaf.URIs)
	}
	if left := time.Until(leaf.NotAfter); left < 59*time.Minute || left > time.Hour {
		t.Errorf("it lasts %s, want 1h", left)
	}
	cli := must(tls.LoadX509KeyPair(filepath.Join(dir, "cli-alice.pem"), filepath.Join(dir, "cli-alice-key.pem")))(t).Leaf
	if d := cmp.Diff([]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, cli.ExtKeyUsage); d != "" || len(cli.DNSNames) > 0 {
		t.Errorf("a cli certificate could answer connections: names %v, usage (-want +got):\n%s", cli.DNSNames, d)
	}
}

func TestCreateRefusesToOverwrite(t *testing.T) {
	req := transport.CertRequest{Role: pki.RoleAgent, Name: "n1"}
	dir, cfg := certFiles(t, "c1", req)
	before := must(os.ReadFile(cfg.CertFile))(t)

	_, err := transport.CreateCA(dir, transport.CAOptions{Cluster: "c1"})
	wantCode(t, err, model.CodeFileExists, "ca.pem", "--force")
	_, err = transport.IssueCert(dir, req, false)
	wantCode(t, err, model.CodeFileExists, "agent-n1.pem", "--force")
	if err := os.Remove(cfg.CertFile); err != nil {
		t.Fatal(err)
	}
	_, err = transport.IssueCert(dir, req, false)
	wantCode(t, err, model.CodeFileExists, "agent-n1-key.pem")

	must(transport.IssueCert(dir, req, true))(t)
	if string(before) == string(must(os.ReadFile(cfg.CertFile))(t)) {
		t.Error("force changed nothing")
	}
	must(transport.LoadCredentials(cfg))(t)
	must(transport.CreateCA(dir, transport.CAOptions{Cluster: "c1", Force: true}))(t)
	_, err = transport.LoadCredentials(cfg)
	wantCode(t, err, model.CodeCertificateInvalid, "agent-n1.pem", "ca.pem")
}

func TestIssueRefusals(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	_, err := transport.IssueCert(dir, transport.CertRequest{Role: pki.RoleServer, Name: "s1"}, false)
	wantCode(t, err, model.CodeCertificateInvalid, "ca.pem", "outspan tls ca create --dir "+dir)
	must(transport.CreateCA(dir, transport.CAOptions{TTL: 48 * time.Hour}))(t)

	tests := map[string]transport.CertRequest{
		"role":        {Role: "root", Name: "x"},
		"empty name":  {Role: pki.RoleServer},
		"path":        {Role: pki.RoleServer, Name: "../x"},
		"kernel name": {Role: pki.RoleCLI, Name: "uid:0(root)"},
		"key name":    {Role: pki.RoleCLI, Name: "x-key"},
		"port":        {Role: pki.RoleServer, Name: "s1", Hosts: []string{"s1.lan:7640"}},
		"scheme":      {Role: pki.RoleServer, Name: "s1", Hosts: []string{"https://s1"}},
		"empty host":  {Role: pki.RoleServer, Name: "s1", Hosts: []string{""}},
		"other role":  {Role: pki.RoleAgent, Name: "n1", Hosts: []string{"server.outspan"}},
		"upper case":  {Role: pki.RoleAgent, Name: "n1", Hosts: []string{"Server.OUTSPAN"}},
		"cli host":    {Role: pki.RoleCLI, Name: "a", Hosts: []string{"h"}},
		"too long":    {Role: pki.RoleServer, Name: "s1", TTL: 72 * time.Hour},
		"negative":    {Role: pki.RoleServer, Name: "s1", TTL: -time.Hour},
	}
	for name, r := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := transport.IssueCert(dir, r, false)
			wantCode(t, err, model.CodeInvalid)
		})
	}
	if got := modes(t, dir); len(got) != 2 {
		t.Errorf("refusals left files: %v", got)
	}
	// Without a TTL in the request, the certificate expires no later than its CA.
	f := must(transport.IssueCert(dir, transport.CertRequest{Role: pki.RoleServer, Name: "s1"}, false))(t)
	if left := time.Until(must(tls.LoadX509KeyPair(f.Cert, f.Key))(t).Leaf.NotAfter); left > 48*time.Hour {
		t.Errorf("the certificate lasts %s, its CA 48h", left)
	}
}

// TestLoadRefusals: each error names the file or setting that is wrong.
func TestLoadRefusals(t *testing.T) {
	req := transport.CertRequest{Role: pki.RoleServer, Name: "s1"}
	dir, good := certFiles(t, "c1", req)
	must(transport.LoadCredentials(good))(t)
	_, other := certFiles(t, "c1", req)
	short := must(transport.IssueCert(dir,
		transport.CertRequest{Role: pki.RoleServer, Name: "old", TTL: time.Nanosecond}, false))(t)
	junk := filepath.Join(dir, "junk")
	if err := os.WriteFile(junk, []byte("-----BEGIN CERTIFICATE-----\nnot base64\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		change func(*transport.CredentialsConfig)
		says   []string
	}{
		"no ca": {func(c *transport.CredentialsConfig) {
			c.CAFile = dir + "/none"
		}, []string{dir + "/none", "ca_file", "tls ca create"}},
		"ca not set": {func(c *transport.CredentialsConfig) { c.CAFile = "" }, []string{"tls.ca_file is not set"}},
		"no cert": {func(c *transport.CredentialsConfig) {
			c.CertFile = dir + "/none"
		}, []string{dir + "/none", "cert_file"}},
		"no key": {func(c *transport.CredentialsConfig) {
			c.KeyFile = dir + "/none"
		}, []string{dir + "/none", "key_file"}},
		"directory": {func(c *transport.CredentialsConfig) { c.KeyFile = dir }, []string{dir, "regular file"}},
		"junk ca":   {func(c *transport.CredentialsConfig) { c.CAFile = junk }, []string{junk, "holds no certificate"}},
		"leaf as ca": {func(c *transport.CredentialsConfig) {
			c.CAFile = c.CertFile
		}, []string{"server-s1.pem", "not a CA"}},
		"junk cert": {func(c *transport.CredentialsConfig) { c.CertFile = junk }, []string{junk}},
		"other key": {func(c *transport.CredentialsConfig) {
			c.KeyFile = other.KeyFile
		}, []string{"don't fit", "server-s1-key.pem"}},
		"other ca": {func(c *transport.CredentialsConfig) {
			c.CAFile = other.CAFile
		}, []string{good.CertFile, other.CAFile}},
		"expired": {func(c *transport.CredentialsConfig) {
			c.CertFile, c.KeyFile = short.Cert, short.Key
		}, []string{short.Cert, "expired at", "outspan tls cert create"}},
		"role": {func(c *transport.CredentialsConfig) {
			c.Role, c.Name = pki.RoleAgent, "n1"
		}, []string{good.CertFile, "role server, not agent", "tls cert create --agent n1"}},
		"name":    {func(c *transport.CredentialsConfig) { c.Name = "s2" }, []string{good.CertFile, `"s1", not "s2"`}},
		"cluster": {func(c *transport.CredentialsConfig) { c.Cluster = "c2" }, []string{good.CertFile, `"c1", not "c2"`}},
		"ca as cert": {func(c *transport.CredentialsConfig) {
			c.CertFile, c.KeyFile = dir+"/ca.pem", dir+"/ca-key.pem"
		}, []string{"ca.pem"}},
		"dir as well": {func(c *transport.CredentialsConfig) { c.Dir = dir }, []string{"both set"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := good
			tt.change(&cfg)
			_, err := transport.LoadCredentials(cfg)
			wantCode(t, err, model.CodeCertificateInvalid, tt.says...)
		})
	}
}

// TestForeignCA: certificates from another tool work if they carry one outspan identity. Certificates with no such
// identity or with two are refused.
func TestForeignCA(t *testing.T) {
	tests := map[string]struct {
		uris []string
		says string
	}{
		"one":          {[]string{"outspan://c1/cli/me"}, ""},
		"among others": {[]string{"spiffe://example.com/x", "outspan://c1/cli/me"}, ""},
		"none":         {[]string{"spiffe://example.com/x"}, "carries no outspan role"},
		"two":          {[]string{"outspan://c1/cli/me", "outspan://c1/server/me"}, "two identities"},
		"odd":          {[]string{"outspan://c1/root/me"}, "unknown role"},
		"no server":    {[]string{"outspan://c1/server/me"}, "lacks the DNS name server.outspan"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := transport.LoadCredentials(foreign(t, tt.uris))
			if tt.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantCode(t, err, model.CodeCertificateInvalid, tt.says)
		})
	}
}

// foreign makes a CA and a certificate with the given URIs, using only the standard library.
func foreign(t *testing.T, uris []string) transport.CredentialsConfig {
	t.Helper()
	dir := t.TempDir()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "example"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, s := range uris {
		leaf.URIs = append(leaf.URIs, must(url.Parse(s))(t))
	}
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	cfg := transport.CredentialsConfig{CAFile: filepath.Join(dir, "ca"), CertFile: filepath.Join(dir, "cert"),
		KeyFile: filepath.Join(dir, "key")}
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	writeAll(t, map[string][]byte{
		cfg.CAFile:   block("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key))(t)),
		cfg.CertFile: block("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), key))(t)),
		cfg.KeyFile:  block("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key))(t)),
	})
	return cfg
}
