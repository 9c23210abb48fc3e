package transport

import (
	"context"
	"crypto/tls"
	"slices"

	"github.com/outspan/outspan/internal/reach"
)

// Bounds of open connections without a certificate. They have an account of their own, so that they take no place from
// others.
const (
	maxBare          = 2048
	maxBarePerSource = 256
)

// deliverBare gives a connection without a certificate to the HTTP server, which must refuse requests without a good
// access token.
func (l *Listener) deliverBare(ctx context.Context, g *gate, conn *tls.Conn) {
	if !g.enter(l.bare, g.source) {
		l.count.refusedAPI.Add(1)
		l.warn("connection without a certificate over the limit", "remote", g.source)
		_ = g.Close()
		return
	}
	if !l.apiQ.push(ctx, conn, l.cfg.HandshakeTimeout) {
		l.count.refusedAPI.Add(1)
		_ = g.Close()
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
