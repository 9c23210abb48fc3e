package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
)

// Bounds of connections without a certificate. They have accounts of their own, so that they take no place from others.
const (
	maxBare          = 2048             // open at once that have shown no good access token
	maxBarePerSource = 256              // of one source, see SourceOf
	proofTime        = 10 * time.Second // until a connection has shown a good access token, see Proved

	maxTokenConns           = 8192 // open at once that have shown one
	maxTokenConnsPerSubject = 512  // of the subject of the first token
)

// bareAccounts are the accounts of connections without a certificate: of those that have proved nothing, by source, and
// of those that have shown a good access token, by its subject.
type bareAccounts struct{ unproved, proved *budget }

func newBareAccounts() *bareAccounts {
	return &bareAccounts{newBudget(maxBare, maxBarePerSource), newBudget(maxTokenConns, maxTokenConnsPerSubject)}
}

// deliverBare gives a connection without a certificate to the HTTP server, which must refuse requests without a good
// access token and call Proved for others. Unless it does, the connection ends after l.proof.
func (l *Listener) deliverBare(ctx context.Context, g *gate, conn *tls.Conn) {
	g.bare = l.bare
	if !g.enterOrDisplace(l.bare.unproved) {
		l.count.refusedAPI.Add(1)
		l.warn("connection without a certificate over the limit", "remote", g.source)
		_ = g.Close()
		return
	}
	g.endAfter(l.proof)
	if !l.apiQ.push(ctx, conn, l.cfg.HandshakeTimeout) {
		l.count.refusedAPI.Add(1)
		_ = g.Close()
	}
}

// enterOrDisplace puts the gate into the account of those that have proved nothing. If the account has no place for it,
// another connection makes room. It returns false if none may be closed for this one.
func (g *gate) enterOrDisplace(account *budget) bool {
	for !g.enter(account, g.source) {
		victim := account.unproved(g.source)
		if victim == nil {
			return false
		}
		_ = victim.Close()
	}
	return true
}

// unproved returns the connection that has to make room for one of a source: the oldest one of the source itself if its
// places are used up, and otherwise of the source that has most of them. It returns nil if there is room.
func (b *budget) unproved(source string) *gate {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.peers[source] >= b.perPeer
	if !own && len(b.open) < b.max {
		return nil
	}
	count, oldest := map[string]int{}, map[string]*gate{}
	for g, of := range b.open {
		if own && of != source {
			continue
		}
		count[of]++
		if first := oldest[of]; first == nil || g.since.Before(first.since) {
			oldest[of] = g
		}
	}
	var victim *gate
	for of, g := range oldest {
		if victim == nil || count[of] > count[victim.source] ||
			count[of] == count[victim.source] && g.since.Before(victim.since) {
			victim = g
		}
	}
	return victim
}

// largest returns the connection that has to make room for one of a peer when the account is full: the oldest one of
// the peer that has most of them. It returns nil if no peer has more than this one would have, or if there is room.
func (b *budget) largest(peer string) *gate {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(b.open) < b.max || b.peers[peer] >= b.perPeer {
		return nil
	}
	of, most := "", b.peers[peer]+1
	for name, n := range b.peers {
		if n > most || n == most && of != "" && name < of {
			of, most = name, n
		}
	}
	var victim *gate
	for g, name := range b.open {
		if of != "" && name == of && (victim == nil || g.since.Before(victim.since)) {
			victim = g
		}
	}
	return victim
}

// endAfter closes a connection after d, unless Proved is called before. A later call replaces an earlier one.
func (g *gate) endAfter(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed || g.proved.Load():
	case g.proving == nil:
		g.proving = time.AfterFunc(d, func() { _ = g.Close() })
	default:
		g.proving.Reset(d)
	}
}

type bareKey struct{}

// Proved keeps the connection of a request that has shown a good access token: it no longer ends soon. From the first
// call on it counts as a connection of the token's subject, and its place among those without a token is free again.
// Connections with a certificate need no Proved, and then it does nothing. Code: busy if the subject has as many
// connections as it may have. The connection then stays what it was.
func Proved(ctx context.Context, who model.Subject) error {
	g, _ := ctx.Value(bareKey{}).(*gate)
	if g == nil || g.proved.Load() || g.moveTo(who.String()) {
		return nil
	}
	return model.Refuse(model.CodeBusy, "%s has too many connections to this server open", who).
		WithHint("use a connection for many requests, or ask another server")
}

// moveTo moves a gate to the account of those that have shown a good access token. When that is full, the subject with
// most connections loses one. It returns false if there is no place.
func (g *gate) moveTo(peer string) bool {
	account := g.bare.proved
	for {
		g.mu.Lock()
		moved := g.closed || g.proved.Load()
		if !moved && account.add(g, peer) {
			g.leave(g)
			g.leave, moved = account.remove, true
			g.proved.Store(true)
			if g.proving != nil {
				g.proving.Stop()
			}
		}
		g.mu.Unlock()
		if moved {
			return true
		}
		victim := account.largest(peer)
		if victim == nil {
			return false
		}
		_ = victim.Close()
	}
}

// Unproved takes Proved back, for a connection to the page whose session has ended: it counts by its source again, and
// ends after d unless Proved is called before. It does nothing to a connection that has proved nothing.
func Unproved(ctx context.Context, d time.Duration) {
	g, _ := ctx.Value(bareKey{}).(*gate)
	if g == nil || !g.proved.Load() {
		return
	}
	if !g.moveBack() {
		_ = g.Close()
		return
	}
	g.endAfter(d)
}

// moveBack moves a gate to the account of those that have proved nothing. It returns false if there is no place.
func (g *gate) moveBack() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || !g.proved.Swap(false) {
		return true
	}
	g.leave(g)
	g.leave = g.bare.unproved.remove
	return g.bare.unproved.add(g, g.source)
}

// Proving lets the connection of a request end no earlier than after d: the request may become a login that is good.
func Proving(ctx context.Context, d time.Duration) {
	if g, _ := ctx.Value(bareKey{}).(*gate); g != nil {
		g.endAfter(max(d, proofTime))
	}
}

// bareConfig returns the configuration for a peer that offers no protocol but HTTP. If the peer has a certificate, it
// must be as good as for serverConfig.
func (c *Credentials) bareConfig() *tls.Config {
	cfg := c.serverConfig([]string{reach.ProtoHTTP2, reach.ProtoHTTP1})
	cfg.ClientAuth = tls.VerifyClientCertIfGiven
	verify := cfg.VerifyConnection
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return nil
		}
		return verify(state)
	}
	return cfg
}

// onlyHTTP reports whether a peer offers HTTP and nothing else. A peer that offers no protocol gets HTTP/1.1.
func onlyHTTP(protos []string) bool {
	return !slices.ContainsFunc(protos, func(p string) bool { return p != reach.ProtoHTTP2 && p != reach.ProtoHTTP1 })
}

// pageProofTime is how long a connection to the page lives until it has shown a good access token: time enough to load
// the page over a slow line.
const pageProofTime = 30 * time.Second

// NewPageListener makes a Listener for browsers. It speaks TLS, asks for no certificate, and accepts HTTP alone. Its
// connections have accounts of their own, so that they take no place from those of another Listener: those that have
// shown no good access token (see Proved) by their source, and the others by the subject of the token. API has the
// connections. Reload, Raft and CloseWhere are not for such a Listener. logger may be nil.
func NewPageListener(raw net.Listener, cert *PageCertificate, logger hclog.Logger) *Listener {
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	lim := Limits{}.withDefaults()
	l := &Listener{
		raw: raw, cfg: ListenerConfig{Logger: logger, HandshakeTimeout: 5 * time.Second},
		pending: newWaiting(lim.MaxPending), handshakes: newHandshakeLimiter(runtime.GOMAXPROCS(0) / 2),
		raft: newBudget(0, 0), api: newBudget(0, 0), join: newJoinBudget(), bare: newBareAccounts(),
		raftQ: newQueue(raw.Addr()), apiQ: newQueue(raw.Addr()), proof: pageProofTime,
	}
	inner := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{reach.ProtoHTTP2, reach.ProtoHTTP1},
		SessionTicketsDisabled: true,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert.now.Load(), nil },
	}
	l.tls = inner.Clone()
	l.tls.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if c, ok := hello.Conn.(*limitedConn); ok {
			if g, ok := c.Conn.(*gate); ok {
				l.pending.heard(g)
			}
		}
		return inner, nil
	}
	return l
}

// PageFiles are the files of the certificate of the page, and the hosts at which people open it.
type PageFiles struct {
	Cert, Key string
	Hosts     []string // names and IP addresses; default those of the certificate
	// where the configuration names Cert and Key, such as "FILE:LINE,COLUMN"; "" if that is not known
	CertAt, KeyAt string
}

// PageCertificate is the certificate that a server shows to browsers. It is read from two files, and again by Reload.
// It is safe for concurrent use.
type PageCertificate struct {
	now atomic.Pointer[tls.Certificate]
}

// LoadPageCertificate reads a certificate with its chain, and its key, from PEM files. Codes: file_error;
// certificate_invalid if they don't belong together, or if neither the certificate nor f names a host.
func LoadPageCertificate(f PageFiles) (*PageCertificate, error) {
	c := &PageCertificate{}
	if err := c.Reload(f); err != nil {
		return nil, err
	}
	return c, nil
}

// Reload reads files again, or others. If that fails, the earlier certificate stays. Codes: those of
// LoadPageCertificate.
func (c *PageCertificate) Reload(f PageFiles) error {
	chain, err := os.ReadFile(f.Cert)
	if err != nil {
		return refusePage(f.CertAt, model.CodeFile, "ui.cert_file can't be read: %v", err).WithHint(pageHint)
	}
	key, err := os.ReadFile(f.Key)
	if err != nil {
		return refusePage(f.KeyAt, model.CodeFile, "ui.key_file can't be read: %v", err).WithHint(pageHint)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return refusePage(f.CertAt, model.CodeCertificateInvalid, "ui.cert_file %s and ui.key_file %s: %v", f.Cert,
			f.Key, err).
			WithHint("cert_file has the certificate first and then its chain, key_file its private key, both as PEM")
	}
	if len(f.Hosts) == 0 && len(pair.Leaf.DNSNames) == 0 && len(pair.Leaf.IPAddresses) == 0 {
		return refusePage(f.CertAt, model.CodeCertificateInvalid, "ui.cert_file %s is for no host: it has no DNS name or "+
			"IP address as subjectAltName, and browsers don't look at its CN", f.Cert).
			WithHint("issue it with subjectAltName, or if a proxy in front of the page shows browsers another certificate, " +
				"set ui.hosts to the names at which people open the page")
	}
	c.now.Store(&pair)
	return nil
}

// refusePage returns an error that begins with the place in the configuration, if it is known.
func refusePage(at string, code model.Code, format string, args ...any) *model.Error {
	e := model.Refuse(code, format, args...)
	if at != "" {
		e.Message = at + ": " + e.Message
	}
	return e
}

const pageHint = "write the certificate and its key there, readable by the user that the server runs as, or correct " +
	"the path in the block ui"

// Covers reports whether the certificate is for a host, which is a name or an IP address.
func (c *PageCertificate) Covers(host string) bool { return c.leaf().VerifyHostname(host) == nil }

// NotFor returns those of the hosts that the certificate is not for.
func (c *PageCertificate) NotFor(hosts []string) []string {
	return slices.DeleteFunc(slices.Clone(hosts), c.Covers)
}

// NotAfter returns when the certificate ends.
func (c *PageCertificate) NotAfter() time.Time { return c.leaf().NotAfter }

func (c *PageCertificate) leaf() *x509.Certificate { return c.now.Load().Leaf }
