package transport

import (
	"context"
	"crypto/tls"
	"slices"
	"time"

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
// access token and call Proved for others. Unless it does, the connection ends after proofTime.
func (l *Listener) deliverBare(ctx context.Context, g *gate, conn *tls.Conn) {
	g.bare = l.bare
	if !g.enterOrDisplace(l.bare.unproved) {
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
