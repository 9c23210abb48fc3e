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

// Dial opens the connection below TLS.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// DialTLS opens a connection with below and does the TLS handshake. It blocks until that is done, ctx ends or 5 s have
// passed. Codes: certificate_refused, not_tls; other errors are those of the network.
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

// ExpectPeer returns a context for requests that only a peer with this name in its certificate may receive. Any other
// peer is refused before it gets a byte of them. Code: certificate_refused.
func ExpectPeer(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, expectedPeer{}, name)
}

// ExpectedPeer returns the name given to ExpectPeer; "": any peer will do.
func ExpectedPeer(ctx context.Context) string {
	name, _ := ctx.Value(expectedPeer{}).(string)
	return name
}

// poolZone is the suffix of every poolHost. No real host name ends in it.
const poolZone = ".peer.invalid:1"

// poolHost returns an artificial address for connections to one peer only. net/http shares connections by host, and two
// agents may have the same address one after the other. A request for one must not use a connection to the other.
func poolHost(name, hostport string) string {
	return hex.EncodeToString([]byte(name)) + "." + hex.EncodeToString([]byte(hostport)) + poolZone
}

// fromPool is the inverse of poolHost. It returns an address that did not come from there unchanged.
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

// dialPool opens a connection to an address made by poolHost.
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

// HTTPTransport is an http.RoundTripper for https:// addresses; it refuses http://. It uses HTTP/2, finds dead
// connections by pings within 5 s, and uses reloaded certificates for new connections. Errors about certificates and
// TLS are *model.Error (inside the *url.Error of http.Client), others are those of net/http. Call CloseIdleConnections
// when done with it. It is safe for concurrent use.
type HTTPTransport struct {
	*http.Transport
	dial dialTLS
}

// A connection on which nothing was received for AskAfter gets a ping, and is closed without an answer within
// AnswerWithin. So an agent whose server falls silent notices after five seconds, and not after a whole long poll.
// 5,000 agents at rest cost 1,700 pings a second, shared by the servers.
const (
	AskAfter     = 3 * time.Second
	AnswerWithin = 2 * time.Second
)

// NewHTTPTransport returns a transport whose connections dial opens, as DialTLS does. dial must refuse peers other than
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

// diagnose connects once more to find out why a server dropped a new connection. In TLS 1.3 a refusal of our
// certificate comes after the handshake, and net/http loses it if it is just writing a request. A server that accepts
// us speaks first in HTTP/2, so reading one byte is enough.
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
