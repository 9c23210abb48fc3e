package transport

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// Dialer opens authenticated connections. Credentials are required; all other fields have defaults. A Dialer is safe
// for concurrent use.
type Dialer struct {
	Credentials *Credentials
	// Peer is the role that the other end must have; default RoleServer.
	Peer pki.Role
	// ServerName replaces the DNS name that the other end's certificate must have. It is for certificates that outspan did
	// not make. The role in the certificate is still checked.
	ServerName string
	// Dial opens the connection below TLS; default net.Dialer. Tests in a synctest bubble return one end of a net.Pipe.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// DialAPI opens a connection for HTTP/2 or HTTP/1.1. Its signature is that of http.Transport.DialTLSContext. It blocks
// until the handshake is done, ctx ends or 5 s have passed. Codes: certificate_refused, not_tls. Errors of the network
// are returned unchanged.
func (d Dialer) DialAPI(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := d.dial(ctx, network, addr, reach.ProtoHTTP2, reach.ProtoHTTP1)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// DialRaft opens a raft connection to a server. This process must be a server too, otherwise the code is
// certificate_refused. It blocks and fails as DialAPI does.
func (d Dialer) DialRaft(ctx context.Context, addr string) (net.Conn, error) {
	if me := d.Credentials.Identity(); me.Role != pki.RoleServer {
		return nil, model.Refuse(model.CodeCertificateRefused, "raft is for servers only: this process is %s", me).
			WithHint("give the server a certificate made with: outspan tls cert create --server NAME")
	}
	d.Peer = pki.RoleServer
	return d.dialOnly(ctx, addr, protoRaft, "raft")
}

// DialAgent opens a connection to a server for the calls of an agent. It blocks and fails as DialAPI does.
func (d Dialer) DialAgent(ctx context.Context, addr string) (net.Conn, error) {
	return d.dialOnly(ctx, addr, protoAgent, "the agents' protocol")
}

// dialOnly opens a connection that must negotiate the given protocol.
func (d Dialer) dialOnly(ctx context.Context, addr, proto, name string) (net.Conn, error) {
	conn, err := d.dial(ctx, "tcp", addr, proto)
	if err != nil {
		return nil, err
	}
	if got := conn.ConnectionState().NegotiatedProtocol; got != proto {
		_ = conn.Close()
		return nil, model.Refuse(model.CodeNotTLS, "%s does not speak %s", addr, name).
			WithHint("check that the address is a server's")
	}
	return conn, nil
}

func (d Dialer) dial(ctx context.Context, network, addr string, protos ...string) (*tls.Conn, error) {
	dial := d.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	peer := d.Peer
	if peer == "" {
		peer = pki.RoleServer
	}
	cfg := d.Credentials.ClientConfig(peer, protos...)
	if d.ServerName != "" {
		cfg.ServerName = d.ServerName
	}
	out := &outward{account: &d.Credentials.dialled}
	conn, err := reach.DialTLS(ctx, network, addr, cfg,
		func(ctx context.Context, network, addr string) (_ net.Conn, err error) {
			out.Conn, err = dial(ctx, network, addr)
			return out, err
		})
	if err != nil {
		return nil, err
	}
	out.proof = conn.ConnectionState().PeerCertificates
	if out.peer, err = checkPeer(addr, reach.ExpectedPeer(ctx), conn.ConnectionState()); err != nil {
		_ = out.Close()
		return nil, err
	}
	out.account.enter(out)
	// Reload and CloseWhere see the connection from now on. They may have run during the handshake.
	if err := d.Credentials.recheck(out.peer, out.proof); err != nil {
		_ = out.Close()
		return nil, err
	}
	return conn, nil
}

// checkPeer returns the peer at addr. It refuses a peer whose certificate has a name other than want. If want is empty,
// it accepts any peer.
func checkPeer(addr, want string, state tls.ConnectionState) (pki.Identity, error) {
	peer, err := pki.Peer(state)
	if err == nil && want != "" && peer.Name != want {
		err = model.Refuse(model.CodeCertificateRefused, "%s answers as %s, not as %s", addr, peer, want).
			WithHint("check who has that address")
	}
	return peer, err
}

// HTTPTransport returns a transport that opens its connections with this dialer. Requests use no connection from before
// the last of Credentials.Changes. So none of them fails when a CA is dropped.
func (d Dialer) HTTPTransport() *reach.HTTPTransport {
	if d.Credentials == nil {
		return reach.NewHTTPTransport(d.dial, nil)
	}
	return reach.NewHTTPTransport(d.dial, d.Credentials.Changes)
}
