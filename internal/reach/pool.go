package reach

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

// DialTimeout bounds a dial and its handshake when the caller's context does not.
const DialTimeout = 5 * time.Second

// The application protocols of the API.
const (
	ProtoHTTP2 = "h2"
	ProtoHTTP1 = "http/1.1"
)

// Dial opens a connection below TLS.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// DialTLS opens a connection with below and does the handshake. It blocks until that is done, ctx ends or 5 s are over.
// Errors: certificate_refused, not_tls; others come as the network gave them.
func DialTLS(ctx context.Context, network, addr string, cfg *tls.Config, below Dial) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	raw, err := below(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, Explain(addr, err)
	}
	return conn, nil
}

type expectedPeer struct{}

// ExpectPeer returns a context for requests that only a peer of this name in its certificate may answer:
// certificate_refused. Another one gets no byte of them.
func ExpectPeer(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, expectedPeer{}, name)
}

// ExpectedPeer is the name that ExpectPeer gave; empty: any will do.
func ExpectedPeer(ctx context.Context) string {
	name, _ := ctx.Value(expectedPeer{}).(string)
	return name
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
func (d dialTLS) dialPool(ctx context.Context, network, addr string) (net.Conn, error) {
	name, hostport := fromPool(addr)
	conn, err := d(ExpectPeer(ctx, name), network, hostport, ProtoHTTP2, ProtoHTTP1)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// dialTLS opens a TLS connection for one of the protocols.
type dialTLS func(ctx context.Context, network, addr string, protos ...string) (*tls.Conn, error)

// HTTPTransport is an http.RoundTripper for https:// addresses; http:// is refused. It uses HTTP/2, finds dead
// connections by pings within 5 s, and follows Reload for new connections. Errors about certificates and TLS are
// *model.Error (within the *url.Error of http.Client), others come as net/http gave them. Call CloseIdleConnections
// when done with it. Safe for many goroutines.
type HTTPTransport struct {
	*http.Transport
	dial dialTLS
}

// A connection on which nothing has come for AskAfter is asked for a sign, and closed without one within AnswerWithin.
// So an agent whose server falls silent is deaf for five seconds and not for the length of a long poll; 5,000 agents at
// rest cost 1,700 signs a second, shared by the servers.
const (
	AskAfter     = 3 * time.Second
	AnswerWithin = 2 * time.Second
)

// NewHTTPTransport makes a transport whose connections dial opens, as DialTLS does; it refuses peers other than
// ExpectedPeer.
func NewHTTPTransport(dial func(ctx context.Context, network, addr string, protos ...string) (*tls.Conn,
	error)) *HTTPTransport {
	return &HTTPTransport{dial: dial, Transport: &http.Transport{
		DialContext:         refusePlaintext,
		DialTLSContext:      dialTLS(dial).dialPool,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     90 * time.Second,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: AskAfter, PingTimeout: AnswerWithin},
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
	if name := ExpectedPeer(ctx); name != "" && req.URL.Scheme == "https" {
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
	if refusal := t.dial.diagnose(ctx, addr); refusal != nil {
		return nil, refusal
	}
	return nil, err
}

// diagnose asks a server once more why it dropped a new connection. With TLS 1.3 a refusal of our certificate comes
// after the handshake, and net/http loses it when it is writing a request just then. A server that accepts us
// speaks first in HTTP/2, so one byte tells.
func (d dialTLS) diagnose(ctx context.Context, addr string) *model.Error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := d(ctx, "tcp", addr, ProtoHTTP2)
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
