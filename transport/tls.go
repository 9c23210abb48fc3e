package transport

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// The ALPN names of our own protocols on the TLS port. A peer that offers no protocol gets HTTP/1.1.
const (
	protoRaft  = "outspan-raft/1"
	protoAgent = "outspan-agent/1"
)

// CredentialsConfig says where a process finds its certificate: three files, or Dir.
type CredentialsConfig struct {
	CAFile, CertFile, KeyFile string
	// Dir is a directory with a CA and its key, for a cluster that lives on one machine (see OpenDir). The process issues
	// itself a certificate for Role and Name, which must be set. It may listen on loopback addresses only. With Dir, the
	// three files must not be set.
	Dir string
	// Cluster, Role and Name are what the certificate must contain. An empty field allows any value. With Dir, an empty
	// Cluster is DefaultCluster.
	Cluster string
	Role    pki.Role
	Name    string
}

// Credentials is a process's certificate, its key, and the CAs that the process trusts. Reload replaces all three at
// once for connections that begin afterwards. Safe for concurrent use.
type Credentials struct {
	load      func() (*pki.Certificate, error)
	change    sync.Mutex // is held during a change of cur and loaded
	cur       atomic.Pointer[pki.Certificate]
	loaded    atomic.Pointer[pki.Certificate] // the last result of load that was in use; cur differs after Use
	admission atomic.Pointer[func(pki.Identity, *x509.Certificate) error]
	proved    atomic.Pointer[func(pki.Identity, *x509.Certificate)]
	dialled   dialled       // connections opened with these credentials
	changes   atomic.Uint64 // see Changes
	dropped   []func()      // called after a CA was dropped; guarded by change
	// rootedLast is the last result of rooted.
	rootedLast atomic.Pointer[rootedPair]
}

// LoadCredentials reads and checks the files, or opens the directory. Errors: certificate_invalid, and those of
// OpenDir.
func LoadCredentials(cfg CredentialsConfig) (*Credentials, error) {
	if cfg.Dir == "" {
		return newCredentials(func() (*pki.Certificate, error) {
			return pki.Load(pki.Config{CA: cfg.CAFile, Cert: cfg.CertFile, Key: cfg.KeyFile,
				Cluster: cfg.Cluster, Role: cfg.Role, Name: cfg.Name})
		})
	}
	if cfg.CAFile != "" || cfg.CertFile != "" || cfg.KeyFile != "" {
		return nil, model.Refuse(model.CodeCertificateInvalid, "tls.dir and certificate files are both set").
			WithHint("use dir on a single machine, or ca_file, cert_file and key_file")
	}
	return newCredentials(func() (*pki.Certificate, error) {
		ca, _, err := OpenDir(cfg.Dir, cfg.Cluster)
		if err != nil {
			return nil, err
		}
		return ca.mint(cfg.Role, cfg.Name)
	})
}

// Credentials issues a certificate for a process. The certificate exists only in memory, and is valid as long as the
// CA. Errors: invalid.
func (a *Authority) Credentials(role pki.Role, name string) (*Credentials, error) {
	return newCredentials(func() (*pki.Certificate, error) { return a.mint(role, name) })
}

func newCredentials(load func() (*pki.Certificate, error)) (*Credentials, error) {
	m, err := load()
	if err != nil {
		return nil, err
	}
	c := &Credentials{load: load}
	c.cur.Store(m)
	c.loaded.Store(m)
	return c, nil
}

func (a *Authority) mint(role pki.Role, name string) (*pki.Certificate, error) {
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
	return &pki.Certificate{Pair: pair, Roots: roots, CAs: [][]byte{a.cert.Raw},
		ID: pki.Identity{Cluster: a.cluster, Role: role, Name: name}}, nil
}

// Reload reads everything again. If a CA is no longer trusted, connections to its peers end, but their calls get time
// to finish: 15 s on accepted connections, where long polls and streams end at once, and 100 s on dialled ones. To end
// them at once, use Listener.Reload. If reading fails, or the new certificate is for another identity, the old
// certificate stays in use. Errors: certificate_invalid, and those of OpenDir.
func (c *Credentials) Reload() error {
	c.change.Lock()
	defer c.change.Unlock()
	m, err := c.load()
	if err != nil {
		return err
	}
	last, old := c.loaded.Load(), c.cur.Load()
	if m.ID != old.ID {
		return model.Refuse(model.CodeCertificateInvalid, "the new certificate is for %s, this process is %s",
			m.ID.URI(), old.ID.URI()).
			WithHint("restart the process to change its identity")
	}
	sameLeaf := m.Pair.Leaf.Equal(last.Pair.Leaf)
	sameRoots := bytes.Equal(pki.RootsDigest(m.CAs), pki.RootsDigest(last.CAs))
	c.loaded.Store(m)
	switch {
	case old != last && sameLeaf && sameRoots:
	case old != last && sameLeaf:
		c.replace(&pki.Certificate{Pair: old.Pair, Roots: m.Roots, CAs: m.CAs, ID: m.ID})
	default:
		c.replace(m)
	}
	return nil
}

// Use makes the process use a certificate that is in no file. The parameters are a certificate with its key, and all
// CAs that count, as DER; with no CAs, they stay the same. A CA that is missing among them is dropped as in Reload.
// Reload keeps the certificate as long as the files have the same one as before: it is the older one. It keeps the CAs
// as long as the files have the same ones. Code: certificate_invalid, also if it is for another identity.
func (c *Credentials) Use(pair tls.Certificate, roots [][]byte) error {
	c.change.Lock()
	defer c.change.Unlock()
	return c.use(pair, roots)
}

func (c *Credentials) use(pair tls.Certificate, roots [][]byte) error {
	old := c.cur.Load()
	if pair.Leaf == nil || len(pair.Leaf.URIs) != 1 || pair.Leaf.URIs[0].String() != old.ID.URI() {
		return model.Refuse(model.CodeCertificateInvalid, "the new certificate is not for %s", old.ID.URI()).
			WithHint("restart the process to change its identity")
	}
	if len(roots) == 0 {
		c.replace(&pki.Certificate{Pair: pair, Roots: old.Roots, CAs: old.CAs, ID: old.ID})
		return nil
	}
	pool := x509.NewCertPool()
	for _, der := range roots {
		root, err := x509.ParseCertificate(der)
		if err != nil {
			return model.Refuse(model.CodeCertificateInvalid, "a certificate of a CA is damaged: %v", err)
		}
		pool.AddCert(root)
	}
	c.replace(&pki.Certificate{Pair: pair, Roots: pool, CAs: roots, ID: old.ID})
	return nil
}

// replace makes m the certificate and the CAs in use. The caller holds c.change.
func (c *Credentials) replace(m *pki.Certificate) {
	old := c.cur.Swap(m)
	dropped := drops(old.CAs, m.CAs)
	if dropped || !old.Pair.Leaf.Equal(m.Pair.Leaf) {
		c.changes.Add(1)
	}
	if dropped {
		c.drainUntrusted()
	}
}

// UseRoots makes the process trust other CAs, as DER, while they can't be written to the files. The certificate in use
// stays. Reload changes nothing until the files change. Code: certificate_invalid.
func (c *Credentials) UseRoots(roots [][]byte) error {
	c.change.Lock()
	defer c.change.Unlock()
	return c.use(c.cur.Load().Pair, roots)
}

// Roots returns the CAs that the process trusts, as DER. The caller must not change them.
func (c *Credentials) Roots() [][]byte { return c.cur.Load().CAs }

// Root returns the CA at the end of the chain of the certificate in use, which a server shows to newcomers. Code:
// certificate_invalid if the chain does not end with a CA that signed itself.
func (c *Credentials) Root() (*x509.Certificate, error) {
	chain := c.rooted().Certificate
	root, err := x509.ParseCertificate(chain[len(chain)-1])
	if err == nil && (!root.IsCA || root.CheckSignatureFrom(root) != nil) {
		err = errors.New("it is not a CA that signed itself")
	}
	if err != nil {
		return nil, model.Refuse(model.CodeCertificateInvalid, "newcomers can't know the CA of this server's certificate: %v",
			err).WithHint("put the root into ca_file, and any CAs between it and the certificate into cert_file")
	}
	return root, nil
}

// Leaf returns the certificate in use.
func (c *Credentials) Leaf() *x509.Certificate { return c.cur.Load().Pair.Leaf }

// Trusts reports whether a peer's certificate was issued by a CA in use. It ignores whether the certificate has
// expired. shown is what the peer showed: its own certificate first, then intermediate certificates.
func (c *Credentials) Trusts(shown []*x509.Certificate) bool {
	if len(shown) == 0 {
		return false
	}
	between := x509.NewCertPool()
	for _, cert := range shown[1:] {
		between.AddCert(cert)
	}
	return len(chainsAt(shown[0], c.cur.Load().Roots, between)) > 0
}

// chainsAt returns the chains from a certificate to a root. It ignores whether the certificates have expired, unless
// they were never valid at the same time.
func chainsAt(leaf *x509.Certificate, roots, between *x509.CertPool) [][]*x509.Certificate {
	for _, at := range []time.Time{leaf.NotBefore, time.Now(), leaf.NotAfter} {
		chains, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: at,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		if err == nil {
			return chains
		}
	}
	return nil
}

// Identity returns the identity in this process's certificate.
func (c *Credentials) Identity() pki.Identity { return c.cur.Load().ID }

// Lifetime returns when the certificate in use was created, and when it expires.
func (c *Credentials) Lifetime() Lifetime { return LifetimeOf(c.cur.Load().Pair.Leaf) }

// Uses reports whether cert is the certificate in use.
func (c *Credentials) Uses(cert *x509.Certificate) bool { return c.cur.Load().Pair.Leaf.Equal(cert) }

// NotAfter returns when the certificate in use expires.
func (c *Credentials) NotAfter() time.Time { return c.cur.Load().Pair.Leaf.NotAfter }

// ServerConfig returns a configuration that accepts TLS 1.3 connections of peers with a certificate of the same CA and
// cluster, in any role. For raft, both ends must have the role server. The configuration follows Reload. The server
// offers protos by ALPN.
func (c *Credentials) ServerConfig(protos ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: protos,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.serverConfig(protos), nil
		},
	}
}

func (c *Credentials) serverConfig(protos []string) *tls.Config {
	m := c.cur.Load()
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   protos,
		Certificates: []tls.Certificate{m.Pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    m.Roots,
		// A ticket would let a peer return after a reload removed its CA.
		SessionTicketsDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			if err := verifyClient(m, state); err != nil {
				return err
			}
			return c.admit(state)
		},
	}
}

func verifyClient(m *pki.Certificate, state tls.ConnectionState) error {
	peer, err := m.Verify(state)
	if err != nil {
		return err
	}
	if state.NegotiatedProtocol == protoRaft && (peer.Role != pki.RoleServer || m.ID.Role != pki.RoleServer) {
		return model.Refuse(model.CodeCertificateRefused, "raft is for servers only: %s called %s", peer, m.ID)
	}
	return nil
}

// ClientConfig returns a configuration for one connection to a peer with the role want. The configuration does not
// follow Reload, so make one for each connection, as Dialer does.
func (c *Credentials) ClientConfig(want pki.Role, protos ...string) *tls.Config {
	cfg := c.cur.Load().ClientConfig(want, protos...)
	verify := cfg.VerifyConnection
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		if err := verify(state); err != nil {
			return err
		}
		return c.admit(state)
	}
	return cfg
}
