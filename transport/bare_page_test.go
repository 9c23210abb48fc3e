package transport_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// writePagePair writes a certificate for a name and 127.0.0.1, and its key. If name is "", it is for no host.
func writePagePair(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)}
	if name == "" {
		c.DNSNames, c.IPAddresses, c.Subject = nil, nil, pkix.Name{CommonName: "one.test"}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, pair.Public(), pair)
	must(err)
	raw, err := x509.MarshalPKCS8PrivateKey(pair)
	must(err)
	cert, key = filepath.Join(dir, "ui.pem"), filepath.Join(dir, "ui-key.pem")
	must(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
	return cert, key
}

// startPage serves a handler at a PageListener.
func startPage(t *testing.T, cert *transport.PageCertificate, handler http.Handler) *transport.Listener {
	t.Helper()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := transport.NewPageListener(raw, cert, nil)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- l.Run(ctx) }()
	go func() { done <- transport.NewHTTPServer(handler, transport.HTTPConfig{}).Run(ctx, l.API()) }()
	t.Cleanup(func() {
		stop()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	return l
}

func dialPage(l *transport.Listener, protos ...string) (*tls.Conn, error) {
	return tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", l.Addr().String(),
		&tls.Config{InsecureSkipVerify: true, NextProtos: protos})
}

// A browser is asked for no certificate, and reaches HTTP alone. A new certificate is shown from a reload on; files
// that can't be used change nothing.
func TestPageListener(t *testing.T) {
	dir := t.TempDir()
	cert, key := writePagePair(t, dir, "one.test")
	holder, err := transport.LoadPageCertificate(transport.PageFiles{Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	l := startPage(t, holder, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, known := transport.SubjectFrom(r.Context()); known {
			t.Error("the request has a subject")
		}
		_, _ = io.WriteString(w, r.Proto)
	}))
	named := func() string {
		c, err := dialPage(l, "h2", "http/1.1")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if s := c.ConnectionState(); s.Version != tls.VersionTLS13 || s.NegotiatedProtocol != "h2" {
			t.Errorf("the connection is %x %s", s.Version, s.NegotiatedProtocol)
		}
		return c.ConnectionState().PeerCertificates[0].DNSNames[0]
	}
	if got := named(); got != "one.test" || !holder.Covers("one.test") || !holder.Covers("127.0.0.1") ||
		holder.Covers("two.test") {
		t.Errorf("the certificate is for %s", got)
	}
	for _, proto := range []string{"outspan-raft/1", "outspan-agent/1", "outspan-join/1"} {
		if c, err := dialPage(l, proto); err == nil {
			c.Close()
			t.Errorf("the page speaks %s", proto)
		}
	}
	if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("plain HTTP: %v, %v", resp, err)
		}
		c.Close()
	}
	if err := os.WriteFile(key, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	err = holder.Reload(transport.PageFiles{Cert: cert, Key: key})
	if err == nil || !strings.Contains(err.Error(), "ui.key_file") {
		t.Errorf("a broken key: %v", err)
	}
	if got := named(); got != "one.test" {
		t.Errorf("after a failed reload the certificate is for %s", got)
	}
	writePagePair(t, dir, "two.test")
	if err := holder.Reload(transport.PageFiles{Cert: cert, Key: key}); err != nil {
		t.Fatal(err)
	}
	if got := named(); got != "two.test" || !holder.Covers("two.test") {
		t.Errorf("after a reload the certificate is for %s", got)
	}
}

// One source has a bounded number of connections that have shown nothing: the oldest makes room. One that has shown a
// good token stays.
func TestPageConnectionsAreBounded(t *testing.T) {
	cert, key := writePagePair(t, t.TempDir(), "one.test")
	holder, err := transport.LoadPageCertificate(transport.PageFiles{Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	l := startPage(t, holder, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := transport.Proved(r.Context(), model.Subject{Kind: model.SubjectToken, Name: "ci"}); err != nil {
			t.Error(err)
		}
	}))
	open := func() *tls.Conn {
		c, err := dialPage(l, "http/1.1")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	proved, oldest := open(), open()
	ask := func() error {
		_ = proved.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.WriteString(proved, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
		_, err := http.ReadResponse(bufio.NewReader(proved), nil)
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	for range 257 {
		open()
	}
	_ = oldest.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := oldest.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("the oldest connection: %v", err)
	}
	if err := ask(); err != nil {
		t.Errorf("the connection with a token: %v", err)
	}
}

// A connection to the page ends soon after its session, although requests go on, unless it proves itself again.
func TestPageConnectionEndsWithItsSession(t *testing.T) {
	cert, key := writePagePair(t, t.TempDir(), "one.test")
	holder, err := transport.LoadPageCertificate(transport.PageFiles{Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	l := startPage(t, holder, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/in":
			if err := transport.Proved(r.Context(), model.Subject{Kind: model.SubjectToken, Name: "ci"}); err != nil {
				t.Error(err)
			}
		case "/out":
			transport.Unproved(r.Context(), time.Second)
		}
	}))
	c, err := dialPage(l, "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // generous
	answers := bufio.NewReader(c)
	ask := func(path string) error {
		_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	for _, path := range []string{"/out", "/in", "/out", "/in"} {
		if err := ask(path); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	for range 15 { // signed in again
		time.Sleep(100 * time.Millisecond)
		if err := ask("/in"); err != nil {
			t.Fatal(err)
		}
	}
	for began := time.Now(); ask("/out") == nil; time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > 30*time.Second { // generous
			t.Fatal("the connection lives on")
		}
	}
}
