package transport

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/outspan/outspan/fsm"
)

// dialTimeout bounds a dial and its handshake when the caller's context does not.
const dialTimeout = 5 * time.Second

// Dialer opens authenticated connections. The zero value plus Credentials dials TCP. Safe for many goroutines.
type Dialer struct {
	Credentials *Credentials
	// Peer is the role the other end must have; default RoleServer.
	Peer Role
	// ServerName replaces the DNS name asked of the certificate, for certificates not made by outspan. The role in
	// it is asked for all the same.
	ServerName string
	// Dial opens the connection below TLS; default net.Dialer. In a synctest bubble it gives one end of a net.Pipe.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// DialAPI opens a connection for HTTP/2 or HTTP/1.1. It fits http.Transport.DialTLSContext. It blocks until the
// handshake is done, ctx ends or 5 s are over. Errors: certificate_refused, not_tls; others come as the network
// gave them.
func (d Dialer) DialAPI(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := d.dial(ctx, network, addr, protoHTTP2, protoHTTP1)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// DialRaft opens a raft connection, as a server to a server. Blocking and errors as DialAPI.
func (d Dialer) DialRaft(ctx context.Context, addr string) (net.Conn, error) {
	if me := d.Credentials.Identity(); me.Role != RoleServer {
		return nil, fsm.Refuse(CodeCertificateRefused, "raft is for servers only: this process is %s", me).
			WithHint("give the server a certificate made with: outspan tls cert create --server NAME")
	}
	d.Peer = RoleServer
	conn, err := d.dial(ctx, "tcp", addr, protoRaft)
	if err != nil {
		return nil, err
	}
	if got := conn.ConnectionState().NegotiatedProtocol; got != protoRaft {
		_ = conn.Close()
		return nil, fsm.Refuse(CodeNotTLS, "%s does not speak raft", addr).WithHint("check that the address is a server's")
	}
	return conn, nil
}

func (d Dialer) dial(ctx context.Context, network, addr string, protos ...string) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	dial := d.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	raw, err := dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	peer := d.Peer
	if peer == "" {
		peer = RoleServer
	}
	cfg := d.Credentials.ClientConfig(peer, protos...)
	if d.ServerName != "" {
		cfg.ServerName = d.ServerName
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, Explain(addr, err)
	}
	return conn, nil
}

// HTTPTransport is for an http.Client that calls https:// addresses; http:// is refused. It uses HTTP/2, finds dead connections by
// pings within 25 s, and follows Reload for new connections. Call CloseIdleConnections when done with it.
func (d Dialer) HTTPTransport() *http.Transport {
	return &http.Transport{
		DialContext:         refusePlaintext,
		DialTLSContext:      d.DialAPI,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     90 * time.Second,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}
}

func refusePlaintext(_ context.Context, _, addr string) (net.Conn, error) {
	return nil, fsm.Refuse(CodeNotTLS, "plain http to %s is refused", addr).WithHint("use https://%s", addr)
}
