package transport

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// The default lifetimes. A CA is valid from a day before its creation (backdate), so that a machine with a slow clock
// accepts it. A certificate is valid from the same moment as its CA: a later one would protect nothing, and a
// certificate that was made while a clock was ahead would be refused once the clock is right.
const (
	DefaultCATTL   = 10 * 365 * 24 * time.Hour
	DefaultCertTTL = 365 * 24 * time.Hour
	backdate       = 24 * time.Hour
)

// Authority is the certificate authority of one cluster, with its private key. It is safe for concurrent use.
type Authority struct {
	cluster string
	cert    *x509.Certificate
	key     crypto.Signer
}

// CertRequest describes a certificate to issue.
type CertRequest struct {
	Role pki.Role
	// Name is the name of the server, node or person: at most 128 letters, digits and "-_.@", beginning with a letter or
	// digit.
	Name string
	// Hosts are further DNS names and IP addresses of a server or agent; a cli certificate must have none. outspan's own
	// clients don't need them, but browsers and curl do. localhost and the loopback addresses are always included.
	Hosts []string
	// TTL is the lifetime; default DefaultCertTTL, or the CA's remaining lifetime if that is shorter. A TTL longer than
	// the CA's remaining lifetime is refused.
	TTL time.Duration
}

// NewAuthority makes a CA in memory. A ttl of 0 means DefaultCATTL. Errors: invalid.
func NewAuthority(cluster string, ttl time.Duration) (*Authority, error) {
	if !pki.ValidCluster(cluster) {
		return nil, model.Refuse(model.CodeInvalid, "cluster name %q is not usable", model.Clip(cluster)).
			WithHint("use at most 63 letters, digits, '-' and '_', starting with a letter or digit")
	}
	if ttl < 0 {
		return nil, model.Refuse(model.CodeInvalid, "lifetime %s is negative", ttl)
	}
	if ttl == 0 {
		ttl = DefaultCATTL
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, model.Refuse(model.CodeCertificateInvalid, "can't make a CA key: %v", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "outspan CA of " + cluster},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(ttl),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		URIs:                  []*url.URL{{Scheme: "outspan", Host: cluster}},
	}
	cert, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &Authority{cluster: cluster, cert: cert, key: key}, nil
}

// LoadAuthority returns the CA with this certificate and this private key. cert is DER; key is PKCS#8 DER, as KeyDER
// returns it. Code: certificate_invalid (damaged, not a pair, expired, or not made by NewAuthority).
func LoadAuthority(cert, key []byte) (*Authority, error) {
	a, err := parseAuthority(encodePEM("CERTIFICATE", cert), encodePEM("PRIVATE KEY", key))
	if err != nil {
		return nil, model.Refuse(model.CodeCertificateInvalid, "the CA can't be used: %s", model.Reason(err)).
			WithHint("use the certificate and the key of one CA of outspan that has not expired")
	}
	return a, nil
}

// AuthorityOf returns the CA of a certificate with its private key in PEM. Code: certificate_invalid (not a pair,
// expired, or not made by NewAuthority).
func AuthorityOf(root *x509.Certificate, keyPEM []byte) (*Authority, error) {
	a, err := parseAuthority(encodeCert(root), keyPEM)
	if err != nil {
		return nil, model.Refuse(model.CodeCertificateInvalid, "%s", model.Reason(err))
	}
	return a, nil
}

// parseAuthority reads a CA from PEM. It refuses a CA that outspan did not make, and an expired one.
func parseAuthority(certPEM, keyPEM []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	cluster, ok := authorityCluster(pair.Leaf)
	if !ok {
		return nil, model.Refuse(model.CodeCertificateInvalid, "it is not a CA made by outspan")
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, model.Refuse(model.CodeCertificateInvalid, "its key can't sign")
	}
	if now := time.Now(); now.After(pair.Leaf.NotAfter) {
		return nil, model.Refuse(model.CodeCertificateInvalid, "it expired at %s", pki.Stamp(pair.Leaf.NotAfter))
	}
	return &Authority{cluster: cluster, cert: pair.Leaf, key: signer}, nil
}

func authorityCluster(cert *x509.Certificate) (string, bool) {
	if !cert.IsCA || len(cert.URIs) != 1 {
		return "", false
	}
	cluster, ok := strings.CutPrefix(cert.URIs[0].String(), pki.Scheme)
	return cluster, ok && pki.ValidCluster(cluster)
}

// Cluster returns the name of the cluster whose certificates this CA issues.
func (a *Authority) Cluster() string { return a.cluster }

// NotAfter returns when the CA expires. No certificate that it issues is valid for longer.
func (a *Authority) NotAfter() time.Time { return a.cert.NotAfter }

// PEM returns the CA's certificate, without its key.
func (a *Authority) PEM() []byte { return encodeCert(a.cert) }

// Root returns the CA's certificate. Callers must not change it.
func (a *Authority) Root() *x509.Certificate { return a.cert }

// KeyDER returns the CA's private key as PKCS#8 DER. Whoever has the key can issue every certificate of the cluster.
// Code: certificate_invalid.
func (a *Authority) KeyDER() ([]byte, error) { return keyDER(a.key) }

// Sign is SignAt by the clock of this machine.
func (a *Authority) Sign(r pki.Request, ttl time.Duration) (*x509.Certificate, error) {
	return a.SignAt(time.Now(), r, ttl)
}

// SignAt issues a certificate for the key of a request. The certificate has the role, the name and the AdmittedAt of
// the request, and for a server its hosts. An agent gets none: nobody checks whether the addresses are its own, and
// programs other than outspan, which know no roles, would take it for a server at such an address. The certificate is
// valid until ttl after now; ttl must be positive. It never lasts longer than the CA. Codes: invalid,
// certificate_invalid (the CA has expired).
func (a *Authority) SignAt(now time.Time, r pki.Request, ttl time.Duration) (*x509.Certificate, error) {
	switch {
	case r.PublicKey == nil:
		return nil, model.Refuse(model.CodeInvalid, "the request of %s %s has no key", r.Role, model.Clip(r.Name)).
			WithHint("make the request with pki.NewRequest")
	case ttl <= 0:
		return nil, model.Refuse(model.CodeInvalid, "lifetime %s is not positive", ttl)
	case now.After(a.cert.NotAfter):
		return nil, model.Refuse(model.CodeCertificateInvalid, "the CA of cluster %s expired at %s", a.cluster,
			pki.Stamp(a.cert.NotAfter)).
			WithHint("make a new CA")
	}
	end := now.Add(ttl)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	wanted := CertRequest{Role: r.Role, Name: r.Name}
	if r.Role == pki.RoleServer {
		wanted.Hosts = r.Hosts
	}
	template, err := a.template(wanted, now, end)
	if err != nil {
		return nil, err
	}
	template.Subject.SerialNumber = pki.SubjectSerial(r.AdmittedAt)
	return sign(template, a.cert, r.PublicKey, a.key)
}

// Issue makes a key and a certificate for that key, both as PEM. Errors: invalid.
func (a *Authority) Issue(r CertRequest) (certPEM, keyPEM []byte, err error) {
	now := time.Now()
	end, err := a.end(now, r)
	if err != nil {
		return nil, nil, err
	}
	template, err := a.template(r, now, end)
	if err != nil {
		return nil, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, model.Refuse(model.CodeCertificateInvalid, "can't make a key for %s %s: %v", r.Role, r.Name, err)
	}
	cert, err := sign(template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = encodeKey(key)
	return encodeCert(cert), keyPEM, err
}

// template returns the certificate of r, valid until end. It ignores the TTL of r.
func (a *Authority) template(r CertRequest, now, end time.Time) (t *x509.Certificate, err error) {
	if !r.Role.Valid() {
		return nil, model.Refuse(model.CodeInvalid, "role %q is unknown", model.Clip(string(r.Role))).
			WithHint("use server, agent or cli")
	}
	if !pki.ValidName(r.Name) {
		return nil, model.Refuse(model.CodeInvalid, "%s name %q is not usable", r.Role, model.Clip(r.Name)).
			WithHint("use at most 128 letters, digits and \"-_.@\", starting with a letter or digit")
	}
	id := pki.Identity{Cluster: a.cluster, Role: r.Role, Name: r.Name}
	t = &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: id.String()},
		NotBefore:    a.cert.NotBefore,
		NotAfter:     end,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs:         []*url.URL{{Scheme: "outspan", Host: id.Cluster, Path: "/" + string(id.Role) + "/" + id.Name}},
	}
	if t.ExtraExtensions, err = issuedAt(now); err != nil {
		return nil, err
	}
	return t, addHosts(t, r)
}

func (a *Authority) end(now time.Time, r CertRequest) (time.Time, error) {
	switch {
	case r.TTL < 0:
		return time.Time{}, model.Refuse(model.CodeInvalid, "lifetime %s is negative", r.TTL)
	case r.TTL == 0:
		end := now.Add(DefaultCertTTL)
		if end.After(a.cert.NotAfter) {
			end = a.cert.NotAfter
		}
		return end, nil
	case now.Add(r.TTL).After(a.cert.NotAfter):
		return time.Time{}, model.Refuse(model.CodeInvalid, "a certificate for %s would outlive its CA, which ends at %s",
			r.TTL, pki.Stamp(a.cert.NotAfter)).
			WithHint("give a shorter --ttl, or make a new CA")
	}
	return now.Add(r.TTL), nil
}

// addHosts makes the certificate of a server or agent usable for incoming connections, under the role's name, localhost
// and the hosts of r. A cli certificate gets none of this, so that it can't pose as a server even if a check of the
// role were missing. Hosts for a cli certificate are refused.
func addHosts(t *x509.Certificate, r CertRequest) error {
	if !r.Role.Listens() {
		if len(r.Hosts) > 0 {
			return model.Refuse(model.CodeInvalid, "a cli certificate has no hosts: nobody connects to it").
				WithHint("leave --host out")
		}
		return nil
	}
	t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	t.DNSNames = []string{r.Role.ServerName(), "localhost"}
	t.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, h := range r.Hosts {
		if err := pki.CheckHost(h); err != nil {
			return err
		}
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
			continue
		}
		t.DNSNames = append(t.DNSNames, h)
	}
	return nil
}

func sign(template, parent *x509.Certificate, pub crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, pub, key)
	if err != nil {
		return nil,
			model.Refuse(model.CodeCertificateInvalid, "can't sign the certificate of %s: %v", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, model.Refuse(model.CodeCertificateInvalid, "can't read back the certificate of %s: %v",
			template.Subject.CommonName, err)
	}
	return cert, nil
}

// serial returns a positive random number of 127 bits, which practically never repeats.
func serial() *big.Int {
	var b [16]byte
	rand.Read(b[:]) // never fails: without randomness, the runtime ends the process
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:])
}

func encodeCert(c *x509.Certificate) []byte { return encodePEM("CERTIFICATE", c.Raw) }

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := keyDER(key)
	if err != nil {
		return nil, err
	}
	return encodePEM("PRIVATE KEY", der), nil
}

func keyDER(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, model.Refuse(model.CodeCertificateInvalid, "can't encode a private key: %v", err)
	}
	return der, nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
