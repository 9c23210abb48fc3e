package transport

import (
	"context"
	"crypto/tls"
	"slices"
	"time"

	"github.com/outspan/outspan/internal/reach"
)

// Bounds of connections without a certificate. They have an account of their own, so that they take no place from
// others.
const (
	maxBare          = 2048             // open at once
	maxBarePerSource = 256              // open at once from one source, see SourceOf
	proofTime        = 10 * time.Second // until a connection has shown a good access token, see Proved
)

// deliverBare gives a connection without a certificate to the HTTP server, which must refuse requests without a good
// access token and call Proved for others. Unless it does, the connection ends after proofTime.
func (l *Listener) deliverBare(ctx context.Context, g *gate, conn *tls.Conn) {
	g.bare = true
	if !g.enterOrDisplace(l.bare) {
		l.count.refusedAPI.Add(1)
		l.warn("connection without a certificate over the limit", "remote", g.source)
		_ = g.Close()
		return
	}
	g.endAfter(proofTime)
	if !l.apiQ.push(ctx, conn, l.cfg.HandshakeTimeout) {
		l.count.refusedAPI.Add(1)
		_ = g.Close()
	}
}

// enterOrDisplace puts the gate into an account. If the account has no place for it, connections that have shown no
// good token make room. It returns false if none of those is left.
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

// unproved returns the connection that has to make room for one of a source: the oldest one without a good token of the
// source itself if its places are used up, and otherwise of the source that has most of them. It returns nil if there
// is room, or no such connection.
func (b *budget) unproved(source string) *gate {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.peers[source] >= b.perPeer
	if !own && len(b.open) < b.max {
		return nil
	}
	count, oldest := map[string]int{}, map[string]*gate{}
	for g, of := range b.open {
		if g.proved.Load() || own && of != source {
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

// Proved keeps the connection of a request that has shown a good access token: it no longer ends soon, and is not
// closed to make room for others. Only connections without a certificate need it.
func Proved(ctx context.Context) {
	g, _ := ctx.Value(bareKey{}).(*gate)
	if g == nil || !g.proved.CompareAndSwap(false, true) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.proving != nil {
		g.proving.Stop()
	}
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
