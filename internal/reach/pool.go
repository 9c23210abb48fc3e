package reach

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/outspan/outspan/model"
)

// DialTimeout limits the time to connect and to do the TLS handshake, even if the caller's context has no deadline.
const DialTimeout = 5 * time.Second

// The application protocols of the API, by their ALPN names.
const (
	ProtoHTTP2 = "h2"
	ProtoHTTP1 = "http/1.1"
)

// Dial opens a network connection, without TLS.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// DialTLS opens a connection with the function below and does the TLS handshake. It blocks until the handshake is done,
// ctx ends or DialTimeout has passed. Codes: certificate_refused, not_tls. Errors of the network are returned
// unchanged.
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

// ExpectPeer returns a context for requests that only the peer with this name in its certificate may receive. If
// another peer has the address, the request fails with the code certificate_refused before a byte of it is sent.
func ExpectPeer(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, expectedPeer{}, name)
}

// ExpectedPeer returns the name given to ExpectPeer, or "" if any peer is accepted.
func ExpectedPeer(ctx context.Context) string {
	name, _ := ctx.Value(expectedPeer{}).(string)
	return name
}

// poolZone is the suffix of every poolHost. No real host name ends in it.
const poolZone = ".peer.invalid:1"

// poolHost returns an artificial address that is used for connections to one peer only. net/http shares connections by
// address. Two agents may have the same address one after the other, but a request to one agent must not use a
// connection to the other. Nor must it use a connection from before the last change of the certificates.
func poolHost(name, hostport string, changes uint64) string {
	return hex.EncodeToString([]byte(name)) + "." + hex.EncodeToString([]byte(hostport)) + "." +
		strconv.FormatUint(changes, 10) + poolZone
}

// fromPool is the inverse of poolHost. If poolHost did not make addr, fromPool returns an empty name and addr itself.
func fromPool(addr string) (name, hostport string) {
	host, made := strings.CutSuffix(addr, poolZone)
	first, rest, _ := strings.Cut(host, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, errName := hex.DecodeString(first)
	b, errHost := hex.DecodeString(second)
	if !made || errName != nil || errHost != nil {
		return "", addr
	}
	return string(a), string(b)
}

// dialPool opens a connection to addr. If poolHost made addr, it connects to the real address in addr, and only to the
// peer that addr names.
func (d dialTLS) dialPool(ctx context.Context, network, addr string) (net.Conn, error) {
	name, hostport := fromPool(addr)
	conn, err := d(ExpectPeer(ctx, name), network, hostport, ProtoHTTP2, ProtoHTTP1)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// dialTLS opens a TLS connection for one of the protocols in protos.
type dialTLS func(ctx context.Context, network, addr string, protos ...string) (*tls.Conn, error)

// HTTPTransport is an http.RoundTripper for https:// addresses. It refuses http://. With a server that supports HTTP/2,
// it finds dead connections by pings within 5 s. Errors about certificates and TLS are *model.Error, inside the
// *url.Error of http.Client. Other errors are those of net/http. Call CloseIdleConnections when the transport is no
// longer needed. An HTTPTransport is safe for concurrent use.
type HTTPTransport struct {
	*http.Transport
	dial    dialTLS
	changes func() uint64
}

// If nothing was received on a connection for AskAfter, a ping is sent. If no answer arrives within AnswerWithin, the
// connection is closed. So an agent notices a silent server after five seconds instead of after a whole long poll. The
// cost with 5,000 idle agents is 1,700 pings a second for all servers together.
const (
	AskAfter     = 3 * time.Second
	AnswerWithin = 2 * time.Second
)

// NewHTTPTransport returns a transport that opens connections with dial. dial must block and fail as DialTLS does. If
// ExpectedPeer returns a name for the context, dial must refuse any peer with another name. changes returns a number:
// after each change of it, new requests use new connections, and running ones continue on theirs. changes must not
// block. It may be nil.
func NewHTTPTransport(dial func(ctx context.Context, network, addr string, protos ...string) (*tls.Conn, error),
	changes func() uint64) *HTTPTransport {
	if changes == nil {
		changes = func() uint64 { return 0 }
	}
	return &HTTPTransport{dial: dial, changes: changes, Transport: &http.Transport{
		DialContext:         refusePlaintext,
		DialTLSContext:      dialTLS(dial).dialPool,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     90 * time.Second,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: AskAfter, PingTimeout: AnswerWithin},
	}}
}

// RoundTrip implements http.RoundTripper. If a request on a new connection fails without a known reason, RoundTrip
// connects once more to find the reason.
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
	name, changes := ExpectedPeer(ctx), t.changes()
	if (name != "" || changes > 0) && req.URL.Scheme == "https" {
		sent = req.Clone(ctx)
		if sent.Host == "" {
			sent.Host = req.URL.Host
		}
		sent.URL.Host = poolHost(name, addr, changes)
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

// diagnose connects once more to find out why a server closed a new connection. In TLS 1.3 a refusal of our certificate
// arrives after the handshake, and net/http loses the refusal if it is writing a request at that moment. In HTTP/2 a
// server that accepts the certificate sends first, so reading one byte is enough. diagnose returns nil if it finds no
// refusal.
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
