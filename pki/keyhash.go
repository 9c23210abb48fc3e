package pki

import (
	"crypto/sha256"
	"crypto/x509"
)

// KeyHash returns the SHA-256 of the public key (SPKI) in a certificate. It names the key, and is not secret.
func KeyHash(cert *x509.Certificate) []byte {
	sum := spkiOf(cert)
	return sum[:]
}

// KeyHash returns what the function KeyHash returns for a certificate of this request. It returns nil if the request
// has no key.
func (r Request) KeyHash() []byte {
	if r.PublicKey == nil {
		return nil
	}
	der, err := x509.MarshalPKIXPublicKey(r.PublicKey)
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(der)
	return sum[:]
}
