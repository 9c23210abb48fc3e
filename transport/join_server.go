package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"runtime/debug"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// Bounds of the connections of newcomers.
const (
	maxJoin          = 64              // open at once
	maxJoinPerSource = 16              // open at once from one source, see SourceOf; many machines may be behind it
	maxJoinPerHost   = 4               // open at once from one IPv6 address
	joinReadTime     = 5 * time.Second // until the whole request has arrived
	joinWriteTime    = 2 * time.Second // for the reply, at the end of joinTime
)

func newJoinBudget() *budget {
	b := newBudget(maxJoin, maxJoinPerSource)
	b.perHost = maxJoinPerHost
	return b
}

var errMixedHello = errors.New("a hello offers " + pki.JoinProtocol + " together with other protocols")

// joinConfig returns the configuration for a hello that offers the protocol of newcomers alone. No other configuration
// of the port asks for no certificate.
func (l *Listener) joinConfig() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{pki.JoinProtocol},
		Certificates:           []tls.Certificate{l.cfg.Credentials.rooted()},
		ClientAuth:             tls.NoClientCert,
		SessionTicketsDisabled: true,
	}
}

// rootedPair is a certificate with a chain that ends with the root.
type rootedPair struct {
	of   *pki.Certificate
	pair tls.Certificate
}

// rooted returns the certificate in use with a chain that ends with the root. A newcomer does not have the root yet.
// The chain is built once for each certificate, because every stranger can ask for it.
func (c *Credentials) rooted() tls.Certificate {
	m := c.cur.Load()
	if last := c.rootedLast.Load(); last != nil && last.of == m {
		return last.pair
	}
	pair := m.Pair
	if chains := chainsAt(m.Pair.Leaf, m.Roots, intermediates(pair.Certificate[1:])); len(chains) > 0 {
		pair.Certificate = nil
		for _, cert := range chains[0] {
			pair.Certificate = append(pair.Certificate, cert.Raw)
		}
	}
	c.rootedLast.Store(&rootedPair{m, pair})
	return pair
}

func intermediates(ders [][]byte) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, der := range ders {
		if cert, err := x509.ParseCertificate(der); err == nil {
			pool.AddCert(cert)
		}
	}
	return pool
}

// serveNewcomer answers the one request of a newcomer and closes the connection. It blocks for at most joinTime.
func (l *Listener) serveNewcomer(ctx context.Context, g *gate, conn *tls.Conn) {
	defer func() { _ = g.Close() }()
	if !g.enter(l.join, g.source) {
		// The connection stays pending meanwhile, so a newcomer for whom there is no place takes none from others.
		l.count.refusedJoin.Add(1)
		l.warn("a newcomer was refused: too many join at once", "remote", g.source)
		l.reply(g, conn, lingerFor, JoinReply{Problem: api.NewProblem(model.Refuse(model.CodeBusy,
			"too many newcomers join at once").WithHint("try again in a moment"))})
		return
	}
	if !l.pending.remove(g) {
		return // already closed to make room for another connection
	}
	ctx, cancel := context.WithTimeout(ctx, joinTime-joinWriteTime)
	defer cancel()
	_ = conn.SetReadDeadline(time.Now().Add(joinReadTime)) // if it fails, so does the read
	var r JoinRequest
	err := readJoin(conn, &r)
	if err == nil {
		err = r.check()
		if err == nil && r.Rejoin != nil {
			err = r.Rejoin.bind(conn.ConnectionState())
		}
	} else if _, refused := errors.AsType[*model.Error](err); !refused {
		l.cfg.Logger.Debug("a newcomer sent no request", "remote", g.source, "error", err)
		return
	}
	var answer JoinReply
	if err == nil {
		answer, err = l.askJoin(ctx, g, r)
	}
	if err != nil {
		l.warn("a newcomer was refused", "remote", g.source, "error", model.Reason(err))
		answer = JoinReply{Problem: api.NewProblem(err)}
	}
	l.reply(g, conn, joinWriteTime, answer)
}

// askJoin calls ListenerConfig.Join. A panic there becomes an error, because a stranger could provoke it again.
func (l *Listener) askJoin(ctx context.Context, g *gate, r JoinRequest) (answer JoinReply, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			l.cfg.Logger.Error("panic while a newcomer was answered", "panic", reason, "stack", string(debug.Stack()))
			err = model.Refuse(model.CodeInternal, "the server failed").WithHint("its log says why")
		}
	}()
	return l.cfg.Join(ctx, g.RemoteAddr(), r)
}

// reply sends the reply and lets it arrive. Sending takes at most limit.
func (l *Listener) reply(g *gate, conn *tls.Conn, limit time.Duration, answer JoinReply) {
	_ = conn.SetWriteDeadline(time.Now().Add(limit)) // if it fails, so does the write
	err := writeJoin(conn, answer)
	if refusal, ok := errors.AsType[*model.Error](err); ok {
		l.cfg.Logger.Error("the reply to a newcomer can't be sent", "remote", g.source, "error", refusal.Message)
		err = writeJoin(conn, JoinReply{Problem: api.NewProblem(refusal)})
	}
	if err != nil {
		l.cfg.Logger.Debug("a newcomer did not take the reply", "remote", g.source, "error", err)
		return
	}
	_ = conn.CloseWrite() // if it fails, the newcomer misses nothing: a reply says how long it is
	linger(g)
}
