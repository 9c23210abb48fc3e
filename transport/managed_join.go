package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// RequestKey returns the key for which this machine asks for the certificate of a role: the key of a request that got
// no certificate, or else that of the certificate that is there, or else a new one. So the same call after a crash
// returns the same key, a repeated request uses its join token once, and a member whose certificate has expired is
// known by its key. The key is on disk when RequestKey returns. Calls for one directory must not overlap. Codes:
// file_error, internal.
func (m Managed) RequestKey(role pki.Role) (*ecdsa.PrivateKey, error) {
	for _, path := range []string{m.nextKeyFile(role), m.KeyFile(role)} {
		if path == m.KeyFile(role) && !m.fits(role, path) { // its certificate is gone, and nobody knows the key
			break
		}
		text, err := pki.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fileError("read", path, err)
		}
		if key := parseRequestKey(text); key != nil {
			return key, nil
		}
	}
	return m.NewRequestKey(role)
}

// NewRequestKey makes the key that RequestKey returns from now on. It is for a member that was revoked, whose earlier
// keys no longer count. Calls for one directory must not overlap. Codes: file_error, internal.
func (m Managed) NewRequestKey(role pki.Role) (*ecdsa.PrivateKey, error) {
	path := m.nextKeyFile(role)
	if m.fits(role, path) {
		if err := m.promote(role); err != nil {
			return nil, err
		}
	}
	if err := m.makeDir(); err != nil {
		return nil, err
	}
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return key, writeFile(path, encoded, 0o600)
}

// parseRequestKey returns nil for anything else than a key that RequestKey has written.
func parseRequestKey(text []byte) *ecdsa.PrivateKey {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil
	}
	return key
}

// Holds reports whether the directory has a certificate of a role with its key. It does not check what they are worth.
func (m Managed) Holds(role pki.Role) bool {
	return m.fits(role, m.KeyFile(role)) || m.fits(role, m.nextKeyFile(role))
}

// Roots reads the CA certificates. It returns none if there is no such file. Code: certificate_invalid.
func (m Managed) Roots() ([]*x509.Certificate, error) {
	text, err := pki.ReadFile(m.RootsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var roots []*x509.Certificate
	for err == nil && len(text) > 0 {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		var root *x509.Certificate
		root, err = x509.ParseCertificate(block.Bytes)
		roots = append(roots, root)
	}
	if err == nil && len(roots) == 0 {
		err = errors.New("it has no certificate")
	}
	if err != nil {
		return nil, model.Refuse(model.CodeCertificateInvalid, "the CA certificates in %s can't be used: %v", m.RootsFile(),
			bareError(err)).WithHint("%s", managedHint)
	}
	return roots, nil
}

// ServerClock returns the time at which a server of the cluster has issued a certificate, by the clock of that server.
func ServerClock(issued *x509.Certificate) time.Time { return LifetimeOf(issued).From }
