package pki

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/outspan/outspan/model"
)

// Issued checks a certificate that a server has issued for a key, and returns the two as a pair. The chain is the
// certificate and any CAs between it and a root, roots are all CAs that count; both are DER. The certificate must be
// for the holder, and good under the roots at the given time. Code: certificate_invalid.
func Issued(chain, roots [][]byte, key *ecdsa.PrivateKey, holds Identity, now time.Time) (tls.Certificate, error) {
	refuse := func(format string, args ...any) (tls.Certificate, error) {
		return tls.Certificate{}, model.Refuse(model.CodeCertificateInvalid, format, args...).
			WithHint("compare the versions on both machines with: outspan version")
	}
	pool, between := x509.NewCertPool(), x509.NewCertPool()
	for _, der := range roots {
		root, err := x509.ParseCertificate(der)
		if err != nil {
			return refuse("the server sent a damaged root: %s", model.Clip(err.Error()))
		}
		pool.AddCert(root)
	}
	if len(chain) == 0 {
		return refuse("the server sent no certificate for %s", holds)
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return refuse("the server sent a damaged certificate for %s: %s", holds, model.Clip(err.Error()))
	}
	for _, der := range chain[1:] {
		if cert, err := x509.ParseCertificate(der); err == nil { // without it, the chain does not verify
			between.AddCert(cert)
		}
	}
	if !key.PublicKey.Equal(leaf.PublicKey) {
		return refuse("the server sent a certificate for another key than that of %s", holds)
	}
	switch id, err := Holder(leaf); {
	case err != nil:
		return refuse("the server sent a certificate without a holder: %s", model.Reason(err))
	case id != holds:
		return refuse("the server sent a certificate for %s of the cluster %q, not for %s of %q", id, id.Cluster, holds,
			holds.Cluster)
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return refuse("the certificate for %s is not good under the roots that the server sent: %s", holds,
			model.Clip(err.Error()))
	}
	return tls.Certificate{Certificate: chain, PrivateKey: key, Leaf: leaf}, nil
}
