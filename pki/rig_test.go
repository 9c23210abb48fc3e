package pki_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/outspan/outspan/pki"
)

// base is the time at which certificates of a test begin. Roots began earlier.
var base = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) string { return pki.Stamp(base.Add(d)) }

// authority is a CA of a test. Unlike the product's, it issues any certificate.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newRoot(t testing.TB, edit func(*x509.Certificate)) authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root of c1"},
		NotBefore: base.Add(-100 * time.Hour), NotAfter: base.Add(100 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		URIs: []*url.URL{{Scheme: "outspan", Host: "c1"}},
	}
	if edit != nil {
		edit(template)
	}
	key := newKey(t)
	return authority{signed(t, template, template, key, key), key}
}

// between returns a CA that a issued.
func (a authority) between(t testing.TB) authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "between"},
		NotBefore: base, NotAfter: base.Add(100 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key := newKey(t)
	return authority{signed(t, template, a.cert, key, a.key), key}
}

// forge returns a certificate that differs from a's only in its signature, which a's key did not make.
func (a authority) forge(t testing.TB) authority {
	t.Helper()
	parent := *a.cert
	parent.PublicKey = nil // CreateCertificate would compare it with the signing key
	return authority{signed(t, a.cert, &parent, a.key, newKey(t)), a.key}
}

// issue returns a certificate with the names that the cluster's CA gives to the holder of uri.
func (a authority) issue(t testing.TB, uri string, edit func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: u.Path[1:]},
		NotBefore: base, NotAfter: base.Add(100 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs:        []*url.URL{u},
	}
	if id, err := pki.ParseIdentity(uri); err == nil {
		template.DNSNames = []string{id.Role.ServerName(), "localhost"}
	}
	if edit != nil {
		edit(template)
	}
	key := newKey(t)
	leaf := signed(t, template, a.cert, key, a.key)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// pair returns the CA's own certificate for use as that of a server.
func (a authority) pair() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{a.cert.Raw}, PrivateKey: a.key, Leaf: a.cert}
}

// asCA lets the holder of a certificate issue others, whether or not it may.
func asCA(c tls.Certificate) authority { return authority{c.Leaf, c.PrivateKey.(*ecdsa.PrivateKey)} }

// chained returns c with the certificates of further CAs behind its own.
func chained(c tls.Certificate, above ...authority) tls.Certificate {
	c.Certificate = c.Certificate[:1:1]
	for _, a := range above {
		c.Certificate = append(c.Certificate, a.cert.Raw)
	}
	return c
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func signed(t testing.TB, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func joinServer(shown tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{shown}, NextProtos: []string{pki.JoinProtocol}}
}

// patience limits every wait of a test for the other end of a connection.
const patience = 20 * time.Second

// serve accepts connections on loopback until the test ends. It sends the state of each finished handshake.
func serve(t testing.TB, config *tls.Config) (address string, states <-chan tls.ConnectionState) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done, accepted := make(chan struct{}), make(chan tls.ConnectionState, 4)
	go func() {
		defer close(done)
		for {
			raw, err := listener.Accept()
			if err != nil {
				return
			}
			conn := tls.Server(raw, config)
			conn.SetDeadline(time.Now().Add(patience))
			if conn.Handshake() == nil {
				accepted <- conn.ConnectionState()
				conn.Read(make([]byte, 1)) // until the newcomer hangs up
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return listener.Addr().String(), accepted
}

// shake returns the state after a handshake with the server at address.
func shake(t testing.TB, address string, config *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", address, config)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer conn.Close()
	return conn.ConnectionState(), nil
}
