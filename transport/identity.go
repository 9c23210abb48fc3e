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

// IdentityFrom returns who sent a request, given the context of the request. If ok is false, the connection proved no
// identity, and the handler must refuse the request.
func IdentityFrom(ctx context.Context) (id pki.Identity, ok bool) {
	id, ok = ctx.Value(identityKey{}).(pki.Identity)
	return id, ok
}

// ConnContext puts the identity of a connection into the context of its requests. It can be used as
// http.Server.ConnContext. It knows the identities of TLS connections whose handshake is done, and of connections of a
// UnixListener.
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
