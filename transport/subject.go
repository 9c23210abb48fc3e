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

// ConnContext puts the subject at the other end of a connection into the context of its requests. It can be used as
// http.Server.ConnContext. It knows TLS connections after their handshake, and connections of a UnixListener.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	switch c := c.(type) {
	case *tls.Conn:
		if id, err := pki.Peer(c.ConnectionState()); err == nil {
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
