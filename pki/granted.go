package pki

import (
	"crypto/x509"
	"net"
	"slices"
	"time"

	"github.com/outspan/outspan/model"
)

// Granted checks a certificate that a CA other than outspan's has made for a request. chain is the certificate, and
// then any CAs between it and a root; roots are all CAs that count. The certificate must have the key, the role and the
// name of the request, be good under the roots at the given time for both ends of a connection, and be no CA. It may
// have further names. Code: certificate_invalid.
func Granted(chain, roots []*x509.Certificate, r Request, cluster string, now time.Time) error {
	refuse := func(format string, args ...any) error {
		return model.Refuse(model.CodeCertificateInvalid, format, args...)
	}
	if n := len(chain); n == 0 || n >= maxChain {
		return refuse("the chain has %d certificates, not 1 to %d", n, maxChain-1)
	}
	leaf, wants := chain[0], Identity{Cluster: cluster, Role: r.Role, Name: r.Name}
	id, err := Holder(leaf)
	switch {
	case !r.PublicKey.Equal(leaf.PublicKey):
		return refuse("the certificate is for another key than that of the request")
	case leaf.IsCA:
		return refuse("the certificate is that of a CA")
	case err != nil:
		return refuse("the certificate has no holder: %s", model.Reason(err))
	case id != wants:
		return refuse("the certificate is for %s, not for %s", id.URI(), wants.URI())
	case !slices.Contains(leaf.DNSNames, r.Role.ServerName()):
		return refuse("the certificate lacks the DNS name %s", r.Role.ServerName())
	case leaf.KeyUsage != 0 && leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return refuse("the certificate lacks the key usage digitalSignature")
	}
	pool, between := x509.NewCertPool(), x509.NewCertPool()
	for _, root := range roots {
		pool.AddCert(root)
	}
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	for usage, name := range map[x509.ExtKeyUsage]string{
		x509.ExtKeyUsageClientAuth: "clientAuth", x509.ExtKeyUsageServerAuth: "serverAuth",
	} {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{usage}})
		if err != nil {
			return refuse("the certificate is not good for %s under ca_file: %s", name, model.Clip(err.Error()))
		}
	}
	return nil
}

// SubjectAltNames returns the names that the certificate of a request must have, in the notation of OpenSSL. The hosts
// of the request follow those that every certificate of the role has.
func (r Request) SubjectAltNames(cluster string) []string {
	id := Identity{Cluster: cluster, Role: r.Role, Name: r.Name}
	all := []string{"URI:" + id.URI(), "DNS:" + r.Role.ServerName(), "DNS:localhost", "IP:127.0.0.1", "IP:::1"}
	for _, host := range r.Hosts {
		kind := "DNS:"
		if net.ParseIP(host) != nil {
			kind = "IP:"
		}
		all = append(all, kind+host)
	}
	return all
}
