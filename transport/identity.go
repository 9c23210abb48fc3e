package transport

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/outspan/outspan/pki"
)

type identityKey struct{}

// WithIdentity returns a context that carries id.
func WithIdentity(ctx context.Context, id pki.Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// IdentityFrom returns who sent a request, given the request's context. ok is false for a connection without proof;
// handlers must refuse such requests.
func IdentityFrom(ctx context.Context) (id pki.Identity, ok bool) {
	id, ok = ctx.Value(identityKey{}).(pki.Identity)
	return id, ok
}

// ConnContext puts the identity of a connection into the context of its requests. It fits http.Server.ConnContext
// and knows TLS connections (handshake done) and those of ListenUnix.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	switch c := c.(type) {
	case *tls.Conn:
		if id, err := pki.Peer(c.ConnectionState()); err == nil {
			return WithIdentity(ctx, id)
		}
	case *UnixConn:
		return WithIdentity(ctx, c.id)
	}
	return ctx
}
