package transport

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

type subjectKey struct{}

// WithSubject returns a context that carries the sender of a request.
func WithSubject(ctx context.Context, s model.Subject) context.Context {
	return context.WithValue(ctx, subjectKey{}, s)
}

// SubjectFrom returns who sent a request, given the context of the request. If ok is false, the connection proved
// nothing, and the handler must refuse the request.
func SubjectFrom(ctx context.Context) (s model.Subject, ok bool) {
	s, ok = ctx.Value(subjectKey{}).(model.Subject)
	return s, ok
}

// Shown is what matters of the certificate that a peer showed.
type Shown struct {
	Key      []byte // pki.KeyHash of the certificate
	NotAfter int64  // when it expires, in Unix ms
	Issuer   []byte // the id of the key of the CA that signed it
}

type shownKey struct{}

// WithShown returns a context that carries the certificate of the sender of a request.
func WithShown(ctx context.Context, s Shown) context.Context {
	return context.WithValue(ctx, shownKey{}, s)
}

// ShownFrom returns the certificate of the sender of a request, given the context of the request. It returns the zero
// value if the connection has none.
func ShownFrom(ctx context.Context) Shown {
	s, _ := ctx.Value(shownKey{}).(Shown)
	return s
}

type remoteKey struct{}

// RemoteFrom returns the address of the agent that sent a call, given the context of the call, or "".
func RemoteFrom(ctx context.Context) string {
	a, _ := ctx.Value(remoteKey{}).(net.Addr)
	if a == nil {
		return ""
	}
	return a.String()
}

// ConnContext puts the subject at the other end of a connection, and its certificate, into the context of its requests.
// It can be used as http.Server.ConnContext. It knows TLS connections after their handshake, and connections of a
// UnixListener.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	switch c := c.(type) {
	case *tls.Conn:
		state := c.ConnectionState()
		if id, err := pki.Peer(state); err == nil {
			leaf := state.PeerCertificates[0]
			ctx = WithShown(ctx, Shown{Key: pki.KeyHash(leaf), NotAfter: leaf.NotAfter.UnixMilli(), Issuer: leaf.AuthorityKeyId})
			return WithSubject(ctx, subjectOf(id))
		}
	case *UnixConn:
		return WithSubject(ctx, c.subject)
	}
	return ctx
}

// subjectOf returns the subject that a certificate identifies.
func subjectOf(id pki.Identity) model.Subject {
	kind := model.SubjectCert
	switch id.Role {
	case pki.RoleServer:
		kind = model.SubjectServer
	case pki.RoleAgent:
		kind = model.SubjectAgent
	}
	return model.Subject{Kind: kind, Name: id.Name}
}
