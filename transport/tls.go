package transport

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
)

// The application protocols on the one TLS port. A peer that offers none gets HTTP/1.1.
const (
	protoRaft  = "outspan-raft/1"
	protoAgent = "outspan-agent/1"
)

// CredentialsConfig says where a process finds its certificate: three files, or Dir.
type CredentialsConfig struct {
	CAFile, CertFile, KeyFile string
	// Dir is the directory of a cluster on one machine. It replaces the three files; Role and Name are then
	// required. The caller must bind loopback only.
	Dir string
	// Cluster, Role and Name are what the certificate must contain. An empty one is taken from the certificate. With Dir,
	// an empty Cluster is DefaultCluster.
	Cluster string
	Role    Role
	Name    string
}

// Credentials is a process's certificate, its key, and the CAs it trusts. It is safe for many goroutines. Reload
// replaces all three at once for connections that begin afterwards.
type Credentials struct {
	load    func() (*material, error)
	cur     atomic.Pointer[material]
	dialled dialled // connections opened with these credentials
}

// material is one loaded generation; it never changes.
type material struct {
	cert  tls.Certificate
	roots *x509.CertPool
	id    Identity
}

// LoadCredentials reads and checks the files, or opens the directory. Errors: certificate_invalid, and those of
// OpenDir.
func LoadCredentials(cfg CredentialsConfig) (*Credentials, error) {
	if cfg.Dir == "" {
		return newCredentials(func() (*material, error) { return loadFiles(cfg) })
	}
	if cfg.CAFile != "" || cfg.CertFile != "" || cfg.KeyFile != "" {
		return nil, model.Refuse(model.CodeCertificateInvalid, "tls.dir and certificate files are both set").
			WithHint("use dir on a single machine, or ca_file, cert_file and key_file")
	}
	return newCredentials(func() (*material, error) {
		ca, _, err := OpenDir(cfg.Dir, cfg.Cluster)
		if err != nil {
			return nil, err
		}
		return ca.mint(cfg.Role, cfg.Name)
	})
}

// Credentials issues a process a certificate that exists only in memory and lasts as long as the CA. Errors: invalid.
func (a *Authority) Credentials(role Role, name string) (*Credentials, error) {
	return newCredentials(func() (*material, error) { return a.mint(role, name) })
}

func newCredentials(load func() (*material, error)) (*Credentials, error) {
	m, err := load()
	if err != nil {
		return nil, err
	}
	c := &Credentials{load: load}
	c.cur.Store(m)
	return c, nil
}

func (a *Authority) mint(role Role, name string) (*material, error) {
	certPEM, keyPEM, err := a.Issue(CertRequest{Role: role, Name: name, TTL: time.Until(a.cert.NotAfter) - time.Second})
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil,
			model.Refuse(model.CodeCertificateInvalid, "can't use the certificate just made for %s %s: %v", role, name, err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &material{cert: pair, roots: roots, id: Identity{Cluster: a.cluster, Role: role, Name: name}}, nil
}

// Reload reads everything again (SIGHUP). It ends connections that Dialers opened to peers whose CA is no longer
// trusted. If reading fails, or the new certificate is for another identity, the old one stays in use. Errors:
// certificate_invalid.
func (c *Credentials) Reload() error {
	_, err := c.reload()
	return err
}

// reload also returns how many connections it ended.
func (c *Credentials) reload() (ended int, err error) {
	m, err := c.load()
	if err != nil {
		return 0, err
	}
	if old := c.cur.Load(); m.id != old.id {
		return 0, model.Refuse(model.CodeCertificateInvalid, "the new certificate is for %s, this process is %s",
			m.id.URI(), old.id.URI()).
			WithHint("restart the process to change its identity")
	}
	c.cur.Store(m)
	return c.dialled.closeIf(func(proof []*x509.Certificate) bool { return !c.Trusts(proof) }), nil
}

// Trusts reports whether a peer's certificate was issued by a CA in use. shown is what the peer showed: its own
// certificate, then intermediate ones. Trusts ignores whether the certificate is expired.
func (c *Credentials) Trusts(shown []*x509.Certificate) bool {
	if len(shown) == 0 {
		return false
	}
	between := x509.NewCertPool()
	for _, cert := range shown[1:] {
		between.AddCert(cert)
	}
	roots := c.cur.Load().roots
	return slices.ContainsFunc([]time.Time{shown[0].NotBefore, time.Now(), shown[0].NotAfter}, func(at time.Time) bool {
		_, err := shown[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: at,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return err == nil
	})
}

// Identity returns the identity in this process's certificate.
func (c *Credentials) Identity() Identity { return c.cur.Load().id }

// Lifetime returns the validity of the certificate in use.
func (c *Credentials) Lifetime() Lifetime { return lifetimeOf(c.cur.Load().cert.Leaf) }

// NotAfter returns when the certificate in use expires.
func (c *Credentials) NotAfter() time.Time { return c.cur.Load().cert.Leaf.NotAfter }

// ServerConfig returns a configuration that accepts TLS 1.3 connections of peers with a certificate of the same CA and
// cluster, in any role. For raft both ends must have the role server. It follows Reload. protos are offered by ALPN.
func (c *Credentials) ServerConfig(protos ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: protos,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.cur.Load().serverConfig(protos), nil
		},
	}
}

func (m *material) serverConfig(protos []string) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   protos,
		Certificates: []tls.Certificate{m.cert},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    m.roots,
		// A ticket would let a peer return after a reload removed its CA.
		SessionTicketsDisabled: true,
		VerifyConnection:       m.verifyClient,
	}
}

func (m *material) verifyClient(state tls.ConnectionState) error {
	peer, err := m.verifyCluster(state)
	if err != nil {
		return err
	}
	if state.NegotiatedProtocol == protoRaft && (peer.Role != RoleServer || m.id.Role != RoleServer) {
		return model.Refuse(model.CodeCertificateRefused, "raft is for servers only: %s called %s", peer, m.id)
	}
	return nil
}

// ClientConfig returns a configuration for one connection to a peer with the role want. It does not follow Reload, so
// make one for each connection, as Dialer does.
func (c *Credentials) ClientConfig(want Role, protos ...string) *tls.Config {
	m := c.cur.Load()
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   protos,
		Certificates: []tls.Certificate{m.cert},
		RootCAs:      m.roots,
		ServerName:   want.serverName(),
		VerifyConnection: func(state tls.ConnectionState) error {
			peer, err := m.verifyCluster(state)
			if err != nil {
				return err
			}
			if peer.Role != want {
				return model.Refuse(model.CodeCertificateRefused, "the peer is %s, not a %s", peer, want).
					WithHint("check the address: it belongs to another process")
			}
			return nil
		},
	}
}

func (m *material) verifyCluster(state tls.ConnectionState) (Identity, error) {
	peer, err := PeerIdentity(state)
	if err != nil {
		return Identity{}, err
	}
	if peer.Cluster != m.id.Cluster {
		return Identity{}, model.Refuse(model.CodeCertificateRefused, "%s is of cluster %q, this is cluster %q",
			peer, peer.Cluster, m.id.Cluster).
			WithHint("use a certificate of cluster %q", m.id.Cluster)
	}
	return peer, nil
}

func loadFiles(cfg CredentialsConfig) (*material, error) {
	pair, roots, err := reach.LoadFiles(reach.Files{CA: cfg.CAFile, Cert: cfg.CertFile, Key: cfg.KeyFile})
	if err != nil {
		return nil, err
	}
	id, err := certIdentity(pair.Leaf)
	if err != nil {
		return nil, model.Refuse(model.CodeCertificateInvalid, "certificate %s: %s", cfg.CertFile, reason(err)).
			WithHint("%s", issueHint(cfg))
	}
	m := &material{cert: pair, roots: roots, id: id}
	return m, checkLeaf(cfg, m)
}

// checkLeaf finds mistakes at the start that would otherwise show later, as refused connections.
func checkLeaf(cfg CredentialsConfig, m *material) error {
	leaf, now := m.cert.Leaf, time.Now()
	wrong := ""
	switch {
	case now.After(leaf.NotAfter):
		wrong = "expired at " + stamp(leaf.NotAfter)
	case now.Before(leaf.NotBefore):
		wrong = "is not valid before " + stamp(leaf.NotBefore) + "; the clock says " + stamp(now)
	case cfg.Cluster != "" && cfg.Cluster != m.id.Cluster:
		wrong = fmt.Sprintf("is of cluster %q, not %q", m.id.Cluster, cfg.Cluster)
	case cfg.Role != "" && cfg.Role != m.id.Role:
		wrong = fmt.Sprintf("has the role %s, not %s", m.id.Role, cfg.Role)
	case cfg.Name != "" && cfg.Name != m.id.Name:
		wrong = fmt.Sprintf("is for the name %q, not %q", m.id.Name, cfg.Name)
	case m.id.Role.listens() && !slices.Contains(leaf.DNSNames, m.id.Role.serverName()):
		wrong = "lacks the DNS name " + m.id.Role.serverName()
	default:
		return reach.CheckChain(reach.Files{CA: cfg.CAFile, Cert: cfg.CertFile, Key: cfg.KeyFile}, m.cert, m.roots)
	}
	return model.Refuse(model.CodeCertificateInvalid, "certificate %s %s", cfg.CertFile, wrong).
		WithHint("%s", issueHint(cfg))
}

func issueHint(cfg CredentialsConfig) string {
	role, name := cfg.Role, cfg.Name
	if !role.Valid() {
		role = RoleCLI
	}
	if name == "" {
		name = "NAME"
	}
	return "issue a new one with: outspan tls cert create --" + string(role) + " " + name
}
