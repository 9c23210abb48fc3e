package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/outspan/outspan/model"
)

// Config names the PEM files of a certificate and says what the certificate must contain.
type Config struct {
	CA, Cert, Key string // paths of the cluster's CAs, of a certificate and of its key; all are required
	// Cluster, Role and Name are what the certificate must contain. An empty field allows any value.
	Cluster string
	Role    Role
	Name    string
	// AnyTime accepts a certificate that has expired, or that is not valid yet.
	AnyTime bool
}

// Certificate is a certificate with its key, the CAs that its holder trusts, and the holder's identity. It never
// changes, so it is safe for concurrent use.
type Certificate struct {
	Pair  tls.Certificate
	Roots *x509.CertPool
	CAs   [][]byte // the certificates of Roots, as DER
	ID    Identity
}

// Load reads the files that cfg names and checks that the certificate is valid now; see Config.AnyTime. Code:
// certificate_invalid.
func Load(cfg Config) (*Certificate, error) {
	ca, err := readPEM("ca_file", cfg.CA)
	if err != nil {
		return nil, err
	}
	c := &Certificate{}
	if c.Roots, c.CAs, err = parseRoots(cfg.CA, ca); err != nil {
		return nil, err
	}
	if c.Pair, err = loadPair(cfg); err != nil {
		return nil, err
	}
	if c.ID, err = Holder(c.Pair.Leaf); err != nil {
		return nil, model.Refuse(model.CodeCertificateInvalid, "certificate %s: %s", cfg.Cert, model.Reason(err)).
			WithHint("%s", cfg.issueHint())
	}
	return c, checkLeaf(cfg, c)
}

// Roots are the CAs that a client without a certificate trusts. It never changes, so it is safe for concurrent use.
type Roots struct{ pool *x509.CertPool }

// LoadRoots reads a PEM file of CA certificates. Code: certificate_invalid.
func LoadRoots(path string) (Roots, error) {
	ca, err := readPEM("ca_file", path)
	if err != nil {
		return Roots{}, err
	}
	pool, _, err := parseRoots(path, ca)
	return Roots{pool}, err
}

// ClientConfig returns a configuration for a connection to a peer of any cluster of these CAs that has the role want. A
// handshake with any other peer fails.
func (r Roots) ClientConfig(want Role, protos ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: protos,
		RootCAs:    r.pool,
		ServerName: want.ServerName(),
		VerifyConnection: func(state tls.ConnectionState) error {
			peer, err := Peer(state)
			if err != nil {
				return err
			}
			return peer.mustBe(want)
		},
	}
}

// mustBe refuses a peer with another role. Code: certificate_refused.
func (i Identity) mustBe(want Role) error {
	if i.Role == want {
		return nil
	}
	return model.Refuse(model.CodeCertificateRefused, "the peer is %s, not a %s", i, want).
		WithHint("check the address: it belongs to another process")
}

// ClientConfig returns a configuration for a connection to a peer of the same cluster that has the role want. The
// client offers protos by ALPN. A handshake with any other peer fails.
func (c *Certificate) ClientConfig(want Role, protos ...string) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   protos,
		Certificates: []tls.Certificate{c.Pair},
		RootCAs:      c.Roots,
		ServerName:   want.ServerName(),
		VerifyConnection: func(state tls.ConnectionState) error {
			peer, err := c.Verify(state)
			if err != nil {
				return err
			}
			return peer.mustBe(want)
		},
	}
}

// Verify returns the identity of a peer. The peer must have a verified certificate of c's cluster. Code:
// certificate_refused.
func (c *Certificate) Verify(state tls.ConnectionState) (Identity, error) {
	peer, err := Peer(state)
	if err != nil {
		return Identity{}, err
	}
	if peer.Cluster != c.ID.Cluster {
		return Identity{}, model.Refuse(model.CodeCertificateRefused, "%s is of cluster %q, this is cluster %q",
			peer, peer.Cluster, c.ID.Cluster).
			WithHint("use a certificate of cluster %q", c.ID.Cluster)
	}
	return peer, nil
}

// checkLeaf refuses a certificate with a mistake when it is loaded. Otherwise the mistake would only show later, as
// refused connections. Code: certificate_invalid.
func checkLeaf(cfg Config, c *Certificate) error {
	leaf, now := c.Pair.Leaf, time.Now()
	wrong := ""
	switch {
	case !cfg.AnyTime && now.After(leaf.NotAfter):
		wrong = "expired at " + Stamp(leaf.NotAfter)
	case !cfg.AnyTime && now.Before(leaf.NotBefore):
		wrong = "is not valid before " + Stamp(leaf.NotBefore) + "; the clock says " + Stamp(now)
	case cfg.Cluster != "" && cfg.Cluster != c.ID.Cluster:
		wrong = fmt.Sprintf("is of cluster %q, not %q", c.ID.Cluster, cfg.Cluster)
	case cfg.Role != "" && cfg.Role != c.ID.Role:
		wrong = fmt.Sprintf("has the role %s, not %s", c.ID.Role, cfg.Role)
	case cfg.Name != "" && cfg.Name != c.ID.Name:
		wrong = fmt.Sprintf("is for the name %q, not %q", c.ID.Name, cfg.Name)
	case c.ID.Role.Listens() && !slices.Contains(leaf.DNSNames, c.ID.Role.ServerName()):
		wrong = "lacks the DNS name " + c.ID.Role.ServerName()
	default:
		return checkChain(cfg, c)
	}
	return model.Refuse(model.CodeCertificateInvalid, "certificate %s %s", cfg.Cert, wrong).
		WithHint("%s", cfg.issueHint())
}

func (cfg Config) issueHint() string {
	role, name := cfg.Role, cfg.Name
	if !role.Valid() {
		role = RoleCLI
	}
	if name == "" {
		name = "NAME"
	}
	return "issue a new one with: outspan tls cert create --" + string(role) + " " + name
}

// Stamp formats a time for messages about certificates.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
