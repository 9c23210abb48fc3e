package transport_test

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A CA that was stored as its certificate and its key is loaded again. It signs requests, and issues nothing else than
// what a request says.
func TestAuthoritySigns(t *testing.T) {
	made := authority(t, "c1")
	key := must(made.KeyDER())(t)
	ca := must(transport.LoadAuthority(made.Root().Raw, key))(t)
	if ca.Cluster() != "c1" || !ca.Root().Equal(made.Root()) {
		t.Errorf("loaded the CA of %s", ca.Cluster())
	}
	der, own, err := pki.NewRequest(pki.RoleAgent, "n1", []string{"n1.lan", "10.0.0.4"})
	if err != nil {
		t.Fatal(err)
	}
	request := must(pki.ParseRequest(der, pki.RoleAgent))(t)
	const ttl = 30 * 24 * time.Hour
	if cert := must(ca.Sign(request, ttl))(t); pki.AdmittedAt(cert) != 0 || len(cert.Subject.Names) != 1 {
		t.Errorf("without a number, the certificate has %d in %s", pki.AdmittedAt(cert), cert.Subject)
	}
	request.AdmittedAt = 1<<63 + 7
	cert := must(ca.Sign(request, ttl))(t)
	if got := pki.AdmittedAt(cert); got != request.AdmittedAt {
		t.Errorf("the certificate has the number %d", got)
	}
	if !own.PublicKey.Equal(cert.PublicKey) || cert.IsCA || cert.URIs[0].String() != "outspan://c1/agent/n1" {
		t.Errorf("signed %+v", cert.Subject)
	}
	// An agent chooses no hosts, and a server does.
	server := request
	server.Role = pki.RoleServer
	for host, of := range map[string]*x509.Certificate{"agent.outspan": cert,
		"server.outspan": must(ca.Sign(server, ttl))(t)} {
		if err := of.VerifyHostname(host); err != nil {
			t.Error(err)
		}
		for _, chosen := range []string{"n1.lan", "10.0.0.4"} {
			if err := of.VerifyHostname(chosen); (err == nil) != (of != cert) {
				t.Errorf("%s at %s: %v", host, chosen, err)
			}
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(made.Root())
	// The bounds are a minute inside the day before the creation, and inside the lifetime.
	for off, good := range map[time.Duration]bool{-24*time.Hour + time.Minute: true, -25 * time.Hour: false,
		ttl - time.Minute: true, ttl + time.Minute: false} {
		_, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: time.Now().Add(off),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if (err == nil) != good {
			t.Errorf("%s from now: %v, want good: %v", off, err, good)
		}
	}
	if long := must(ca.Sign(request, 20*365*24*time.Hour))(t); !long.NotAfter.Equal(ca.NotAfter()) {
		t.Errorf("the certificate ends at %s, its CA at %s", long.NotAfter, ca.NotAfter())
	}
	_, err = ca.Sign(request, 0)
	wantCode(t, err, model.CodeInvalid, "not positive")
	_, err = ca.Sign(pki.Request{Role: pki.RoleAgent, Name: "n1"}, ttl)
	wantCode(t, err, model.CodeInvalid, "no key")
	server.Hosts = []string{"agent.outspan"}
	_, err = ca.Sign(server, ttl)
	wantCode(t, err, model.CodeInvalid, "reserved")
}

func TestLoadAuthorityRefuses(t *testing.T) {
	one, two := authority(t, "c1"), authority(t, "c1")
	key := must(one.KeyDER())(t)
	expired := must(transport.NewAuthority("c1", time.Nanosecond))(t)
	der, _ := requestFor(t, pki.RoleServer, "s1")
	request := must(pki.ParseRequest(der, pki.RoleServer))(t)
	leaf := must(one.Sign(request, time.Hour))(t)
	for name, tt := range map[string]struct{ cert, key []byte }{
		"another's key":   {two.Root().Raw, key},
		"no certificate":  {nil, key},
		"no key":          {one.Root().Raw, nil},
		"damaged":         {one.Root().Raw[:100], key},
		"expired":         {expired.Root().Raw, must(expired.KeyDER())(t)},
		"a server's cert": {leaf.Raw, key},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := transport.LoadAuthority(tt.cert, tt.key)
			wantCode(t, err, model.CodeCertificateInvalid, "the CA can't be used")
		})
	}
	_, err := expired.Sign(request, time.Hour)
	wantCode(t, err, model.CodeCertificateInvalid, "expired at")
}
