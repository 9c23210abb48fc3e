package transport

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/outspan/outspan/model"
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
		return nil, model.Refuse(model.CodeCertificateRefused, "raft is for servers only: this process is %s", me).
			WithHint("give the server a certificate made with: outspan tls cert create --server NAME")
	}
	d.Peer = RoleServer
	return d.dialOnly(ctx, addr, protoRaft, "raft")
}

// DialAgent opens a connection for the calls of an agent. Blocking and errors as DialAPI.
func (d Dialer) DialAgent(ctx context.Context, addr string) (net.Conn, error) {
	return d.dialOnly(ctx, addr, protoAgent, "the agents' protocol")
}

// dialOnly wants one protocol and no other.
func (d Dialer) dialOnly(ctx context.Context, addr, proto, name string) (net.Conn, error) {
	conn, err := d.dial(ctx, "tcp", addr, proto)
	if err != nil {
		return nil, err
	}
	if got := conn.ConnectionState().NegotiatedProtocol; got != proto {
		_ = conn.Close()
		return nil, model.Refuse(model.CodeNotTLS, "%s does not speak %s", addr, name).WithHint("check that the address is a server's")
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
	out := &outward{Conn: raw, account: &d.Credentials.dialled}
	conn := tls.Client(out, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, Explain(addr, err)
	}
	if err := checkPeer(addr, expected(ctx), conn.ConnectionState()); err != nil {
		raw.Close()
		return nil, err
	}
	out.proof = conn.ConnectionState().PeerCertificates
	out.account.enter(out)
	if !d.Credentials.Trusts(out.proof) { // its CA was taken away meanwhile
		_ = out.Close()
		return nil, model.Refuse(model.CodeCertificateRefused, "the CA of the certificate of %s was taken away", addr)
	}
	return conn, nil
}

type expectedPeer struct{}

// ExpectPeer returns a context for requests that only a peer of this name in its certificate may answer:
// certificate_refused. Another one gets no byte of them.
func ExpectPeer(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, expectedPeer{}, name)
}

// expected is the name that ExpectPeer gave; empty: any will do.
func expected(ctx context.Context) string {
	name, _ := ctx.Value(expectedPeer{}).(string)
	return name
}

// checkPeer refuses a peer that is not the one that is expected.
func checkPeer(addr, want string, state tls.ConnectionState) error {
	if want == "" {
		return nil
	}
	peer, err := PeerIdentity(state)
	if err == nil && peer.Name != want {
		err = model.Refuse(model.CodeCertificateRefused, "%s answers as %s, not as %s", addr, peer, want).WithHint("check who has that address")
	}
	return err
}

// poolZone is the end of every poolHost. No host has a name in it.
const poolZone = ".peer.invalid:1"

// poolHost is an address for connections to one peer only. net/http shares the connections of one host, and two agents
// may come to one address, one after the other: what is meant for one must not go over a connection to the other.
func poolHost(name, hostport string) string {
	return hex.EncodeToString([]byte(name)) + "." + hex.EncodeToString([]byte(hostport)) + poolZone
}

// fromPool is the way back from poolHost. An address that did not come from there is itself.
func fromPool(addr string) (name, hostport string) {
	host, made := strings.CutSuffix(addr, poolZone)
	first, second, _ := strings.Cut(host, ".")
	a, errName := hex.DecodeString(first)
	b, errHost := hex.DecodeString(second)
	if !made || errName != nil || errHost != nil {
		return "", addr
	}
	return string(a), string(b)
}

// dialPool opens a connection for the requests of one pool.
func (d Dialer) dialPool(ctx context.Context, network, addr string) (net.Conn, error) {
	name, hostport := fromPool(addr)
	return d.DialAPI(ExpectPeer(ctx, name), network, hostport)
}

// HTTPTransport is an http.RoundTripper for https:// addresses; http:// is refused. It uses HTTP/2, finds dead
// connections by pings within 5 s, and follows Reload for new connections. Errors about certificates and TLS are
// *model.Error (within the *url.Error of http.Client), others come as net/http gave them. Call CloseIdleConnections
// when done with it. Safe for many goroutines.
type HTTPTransport struct {
	*http.Transport
	dialer Dialer
}

// A connection on which nothing has come for askAfter is asked for a sign, and closed without one within answerWithin.
// So an agent whose server falls silent is deaf for five seconds and not for the length of a long poll; 5,000 agents at
// rest cost 1,700 signs a second, shared by the servers.
const (
	askAfter     = 3 * time.Second
	answerWithin = 2 * time.Second
)

// HTTPTransport makes a transport whose connections this dialer opens.
func (d Dialer) HTTPTransport() *HTTPTransport {
	return &HTTPTransport{dialer: d, Transport: &http.Transport{
		DialContext:         refusePlaintext,
		DialTLSContext:      d.dialPool,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     90 * time.Second,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: askAfter, PingTimeout: answerWithin},
	}}
}

// RoundTrip implements http.RoundTripper.
func (t *HTTPTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	var fresh atomic.Bool
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { fresh.Store(!info.Reused) },
	})
	addr := req.URL.Host
	if req.URL.Port() == "" {
		addr = net.JoinHostPort(req.URL.Hostname(), "443")
	}
	sent := req.WithContext(ctx)
	if name := expected(ctx); name != "" && req.URL.Scheme == "https" {
		sent = req.Clone(ctx)
		if sent.Host == "" {
			sent.Host = req.URL.Host
		}
		sent.URL.Host = poolHost(name, addr)
	}
	resp, err := t.Transport.RoundTrip(sent)
	if err == nil {
		resp.Request = req
		return resp, nil
	}
	err = Explain(addr, err)
	if _, known := errors.AsType[*model.Error](err); known || !fresh.Load() || ctx.Err() != nil {
		return nil, err
	}
	if refusal := t.dialer.diagnose(ctx, addr); refusal != nil {
		return nil, refusal
	}
	return nil, err
}

// diagnose asks a server once more why it dropped a new connection. With TLS 1.3 a refusal of our certificate comes
// after the handshake, and net/http loses it when it is writing a request just then. A server that accepts us
// speaks first in HTTP/2, so one byte tells.
func (d Dialer) diagnose(ctx context.Context, addr string) *model.Error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := d.dial(ctx, "tcp", addr, protoHTTP2)
	if err == nil {
		stop := context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })
		_, err = conn.Read(make([]byte, 1))
		stop()
		_ = conn.NetConn().Close()
	}
	refusal, _ := errors.AsType[*model.Error](Explain(addr, err))
	return refusal
}

func refusePlaintext(_ context.Context, _, addr string) (net.Conn, error) {
	return nil, model.Refuse(model.CodeNotTLS, "plain http to %s is refused", addr).WithHint("use https://%s", addr)
}
