package daemon

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/transport"
)

// writePageFiles writes a certificate for DNS names, and its key, to the files of a page.
func writePageFiles(t *testing.T, ui *config.UI, names ...string) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "page.test"}, DNSNames: names,
		NotAfter: time.Now().Add(30 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	must(err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	must(os.WriteFile(ui.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(os.WriteFile(ui.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
}

// A certificate for no host is refused, and hosts that it is not for are named.
func TestCheckFilesOfThePage(t *testing.T) {
	dir := t.TempDir()
	ui := &config.UI{CertFile: filepath.Join(dir, "ui.pem"), KeyFile: filepath.Join(dir, "ui-key.pem")}
	c := &config.Config{Name: "s1", Cluster: "c1", Server: &config.Server{}, TLS: config.TLS{Dir: dir}, UI: ui}
	writePageFiles(t, ui)
	if _, err := CheckFiles(c); err == nil || !strings.Contains(err.Error(), "ui.cert_file") {
		t.Errorf("a certificate without subjectAltName: %v", err)
	}
	ui.KeyFile, ui.KeyAt = ui.KeyFile+"x", "a.hcl:4,14"
	if _, err := CheckFiles(c); err == nil || !strings.Contains(err.Error(), "a.hcl:4,14: ui.key_file can't be read") {
		t.Errorf("without the key: %v", err)
	}
	ui.KeyFile = strings.TrimSuffix(ui.KeyFile, "x")
	writePageFiles(t, ui, "page.test")
	ui.Hosts = []string{"page.test", "other.test"}
	if got, err := CheckFiles(c); err != nil || !slices.Equal(got.OtherHosts, []string{"other.test"}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A reload with a certificate for no host changes nothing of the page, and the log says so. It warns of hosts that the
// certificate is not for.
func TestReloadOfThePage(t *testing.T) {
	dir := t.TempDir()
	ui := &config.UI{CertFile: filepath.Join(dir, "ui.pem"), KeyFile: filepath.Join(dir, "ui-key.pem"),
		Hosts: []string{"page.test"}}
	writePageFiles(t, ui, "page.test", "b.test")
	cert, err := transport.LoadPageCertificate(pageFiles(ui))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	p := &webPage{cert: cert, log: hclog.New(&hclog.LoggerOptions{Output: &text})}
	p.hosts.Store(&ui.Hosts)
	newer := *ui
	newer.Hosts = nil
	writePageFiles(t, ui)
	if err := p.reload(&newer); err == nil || !strings.Contains(err.Error(), "keeps its earlier certificate and hosts") {
		t.Errorf("a certificate without subjectAltName: %v", err)
	}
	if !p.isHost("page.test") || p.isHost("b.test") || !cert.Covers("b.test") {
		t.Error("a reload that failed has changed the page")
	}
	newer.Hosts = []string{"page.test", "other.test"}
	writePageFiles(t, ui, "page.test")
	if err := p.reload(&newer); err != nil || !p.isHost("other.test") ||
		!strings.Contains(text.String(), "hosts=other.test") {
		t.Errorf("a host that the certificate is not for: %v, log %s", err, text.String())
	}
}
