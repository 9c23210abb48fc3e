package reach

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"
)

// A certificate that is refused because of a clock: the error has the time of the certificate, the time by which it was
// judged, and the difference.
func TestExplainTime(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	const day = 24 * time.Hour
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: from.Add(30 * day),
		DNSNames: []string{"server.outspan"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	for clock, want := range map[time.Duration][]string{
		45 * day: {"10.0.0.1:7640 expired at 2030-02-01T03:04:05Z", "the clock here says 2030-02-16T03:04:05Z",
			"360h later"},
		-14 * day: {"10.0.0.1:7640 is not valid before 2030-01-02T03:04:05Z", "the clock here says 2029-12-19T03:04:05Z",
			"336h earlier"},
	} {
		here, there := net.Pipe()
		server := tls.Server(there, &tls.Config{MinVersion: tls.VersionTLS13,
			Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
		client := tls.Client(here, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: "server.outspan",
			Time: func() time.Time { return from.Add(clock) }})
		answered := make(chan error, 1)
		go func() { answered <- server.Handshake() }()
		err := Explain("10.0.0.1:7640", client.Handshake())
		_, _ = here.Close(), there.Close()
		if <-answered == nil {
			t.Errorf("the server did not notice the refusal")
		}
		for _, words := range want {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("a clock that differs by %s: there is no %q in %v", clock, words, err)
			}
		}
	}
}
