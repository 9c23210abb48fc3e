package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// Limits bounds the connections of a Listener. Each kind of connection has limits of its own, so that no kind can use
// up the places of another. Each connection needs a file descriptor, so a higher limit may need a higher RLIMIT_NOFILE.
type Limits struct {
	// MaxPending is how many connections may be in their handshake; default 256. When so many are, each new connection
	// makes the listener close one connection of the busiest source address.
	MaxPending int
	// MaxRaft is how many raft connections may be open; default 128. A server uses about four per peer.
	MaxRaft int
	// MaxAPI is how many API connections may be open; default 16,384. An agent uses one or two.
	MaxAPI int
	// MaxAPIPerPeer is how many API connections peers with the same certificate identity may have open; default 512.
	MaxAPIPerPeer int
}

func (l Limits) withDefaults() Limits {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&l.MaxPending, 256)
	set(&l.MaxRaft, 128)
	set(&l.MaxAPI, 16384)
	set(&l.MaxAPIPerPeer, 512)
	return l
}

// ListenerConfig configures a Listener.
type ListenerConfig struct {
	// Credentials is required.
	Credentials *Credentials
	// Logger is optional.
	Logger hclog.Logger
	// HandshakeTimeout bounds the time from accept to the end of the handshake, and then the time until raft or the HTTP
	// server takes the connection. The default is 2 s. With less, slow peers are refused; with more, unauthenticated
	// connections stay longer.
	HandshakeTimeout time.Duration
	Limits           Limits
	// Join answers newcomers, which have no certificate. If it is nil, the port does not offer the protocol for newcomers.
	Join AnswerJoin
	// Tokens says that the API also takes peers without a certificate, which send access tokens. Raft and the protocol of
	// agents demand a certificate anyway.
	Tokens bool
	// Failed is called for each handshake that fails. It must not block. Optional.
	Failed func(FailedHandshake)
	// Copies notes agents whose replaced certificates are still in use elsewhere. Optional.
	Copies *Copies
}

// Listener shares one port between raft and the API. Make it with NewListener, then Run it. API and Raft may be called
// before Run. Safe for concurrent use.
type Listener struct {
	raw        net.Listener
	cfg        ListenerConfig
	tls        *tls.Config
	pending    *waiting
	handshakes *handshakeLimiter
	raft       *budget
	api        *budget
	join       *budget
	bare       *bareAccounts
	proof      time.Duration // until a connection without a certificate has shown a good access token
	raftQ      *queue
	apiQ       *queue
	wg         sync.WaitGroup
	noise      throttle
	count      counters
	seen       seenCerts
}

type counters struct{ accepted, failed, evicted, refusedRaft, refusedAPI, refusedJoin atomic.Uint64 }

// ListenerStats has counters since the start. Pending, Raft, API and Join are the numbers of connections that are open
// now.
type ListenerStats struct {
	Accepted, HandshakeFailed, PendingEvicted, RaftRefused, APIRefused, JoinRefused uint64
	Pending, Raft, API, Join                                                        int
}

// NewListener makes a Listener that owns raw, which is a TCP listener. In tests, the connections of raw may also be
// ends of a net.Pipe. Code: certificate_invalid if cfg has no credentials.
func NewListener(raw net.Listener, cfg ListenerConfig) (*Listener, error) {
	if cfg.Credentials == nil {
		return nil, model.Refuse(model.CodeCertificateInvalid, "a listener needs a certificate").WithHint("set the tls block")
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.HandshakeTimeout <= 0 {
		cfg.HandshakeTimeout = 2 * time.Second
	}
	lim := cfg.Limits.withDefaults()
	l := &Listener{
		raw:        raw,
		cfg:        cfg,
		pending:    newWaiting(lim.MaxPending),
		handshakes: newHandshakeLimiter(runtime.GOMAXPROCS(0) / 2),
		raft:       newBudget(lim.MaxRaft, lim.MaxRaft),
		api:        newBudget(lim.MaxAPI, lim.MaxAPIPerPeer),
		join:       newJoinBudget(),
		bare:       newBareAccounts(),
		proof:      proofTime,
		raftQ:      newQueue(raw.Addr()),
		apiQ:       newQueue(raw.Addr()),
	}
	l.tls = l.config()
	cfg.Credentials.onDrop(l.drainUntrusted)
	return l, nil
}

// config returns the TLS configuration of the port. It demands a certificate, except for the protocol of newcomers, and
// for HTTP if cfg.Tokens is set.
// With this configuration, the listener also records which pending connections have sent a whole hello.
func (l *Listener) config() *tls.Config {
	cfg := l.cfg.Credentials.ServerConfig(protoRaft, protoAgent, reach.ProtoHTTP2, reach.ProtoHTTP1)
	next := cfg.GetConfigForClient
	cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if c, ok := hello.Conn.(*limitedConn); ok {
			if g, ok := c.Conn.(*gate); ok {
				l.pending.heard(g)
			}
		}
		newcomer := slices.Contains(hello.SupportedProtos, pki.JoinProtocol)
		switch {
		case newcomer && len(hello.SupportedProtos) > 1:
			return nil, errMixedHello
		case newcomer && l.cfg.Join != nil:
			return l.joinConfig(), nil
		case l.cfg.Tokens && onlyHTTP(hello.SupportedProtos):
			return l.cfg.Credentials.bareConfig(), nil
		}
		return next(hello) // a newcomer to a port without Join finds no protocol in common
	}
	return cfg
}

// API returns the listener for an HTTPServer. Its connections are *tls.Conn with the handshake done.
func (l *Listener) API() net.Listener { return l.apiQ }

// Addr returns the address that the port is open on.
func (l *Listener) Addr() net.Addr { return l.raw.Addr() }

// SetLimits changes the limits for new connections. It closes no open connection.
func (l *Listener) SetLimits(lim Limits) {
	lim = lim.withDefaults()
	l.pending.setMax(lim.MaxPending)
	l.raft.setMax(lim.MaxRaft, lim.MaxRaft)
	l.api.setMax(lim.MaxAPI, lim.MaxAPIPerPeer)
}

// Stats returns the current counts.
func (l *Listener) Stats() ListenerStats {
	return ListenerStats{
		Accepted:        l.count.accepted.Load(),
		HandshakeFailed: l.count.failed.Load(),
		PendingEvicted:  l.count.evicted.Load(),
		RaftRefused:     l.count.refusedRaft.Load(),
		APIRefused:      l.count.refusedAPI.Load(),
		JoinRefused:     l.count.refusedJoin.Load(),
		Pending:         l.pending.len(),
		Raft:            l.raft.len(),
		API:             l.api.len() + l.bare.unproved.len() + l.bare.proved.len(),
		Join:            l.join.len(),
	}
}

// Run accepts connections until ctx ends, and then returns nil. It returns listen_failed if somebody else closes the
// port. When Run returns, the port is closed, no handshake is running, and no accepted raft connection and no
// connection of a newcomer is open. Open API connections are left to the HTTP server. Call Run once.
func (l *Listener) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { l.raw.Close() })
	err := l.acceptAll(ctx)
	cancel()
	stop()
	l.raw.Close()
	l.pending.closeAll()
	l.apiQ.close()
	l.raftQ.close()
	l.join.closeAll()
	l.wg.Wait()
	l.raft.closeAll()
	return err
}

func (l *Listener) acceptAll(ctx context.Context) error {
	var delay time.Duration
	for {
		raw, err := l.raw.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				raw.Close()
			}
			return nil
		case err == nil:
			delay = 0
			l.admit(ctx, raw)
		case errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF):
			return model.Refuse(model.CodeListen, "the listener on %s was closed", l.raw.Addr())
		default: // for example, no file descriptor is free, or the peer gave up: the next Accept may succeed
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			l.warn("can't accept a connection", "error", err, "retry_in", delay)
			sleep(ctx, delay)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (l *Listener) admit(ctx context.Context, raw net.Conn) {
	l.count.accepted.Add(1)
	g := newGate(raw)
	g.leave = func(g *gate) { l.pending.remove(g) }
	if !l.letIn(ctx, g) {
		_ = g.Close()
		return
	}
	l.wg.Go(func() { l.handshake(ctx, g) })
}

// letIn adds g to the pending connections. If there are too many, it waits until a place is free, or until a pending
// connection may be closed for g. It returns false if ctx ends first.
func (l *Listener) letIn(ctx context.Context, g *gate) bool {
	for {
		victim, wait := l.pending.add(g)
		if wait == 0 {
			if victim != nil {
				l.count.evicted.Add(1)
				_ = victim.Close()
			}
			return true
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-l.pending.freed:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
}

func (l *Listener) handshake(ctx context.Context, g *gate) {
	limit, cancel := context.WithTimeout(ctx, l.cfg.HandshakeTimeout)
	defer cancel()
	raw := &limitedConn{Conn: g, ctx: limit, source: g.source, limiter: l.handshakes}
	conn := tls.Server(raw, l.tls)
	err := conn.HandshakeContext(limit)
	raw.over()
	state := conn.ConnectionState()
	if err != nil {
		if peer, bad := pki.Peer(state); bad == nil && len(state.VerifiedChains) > 0 && refused(err) {
			l.noteCopy(g, peer, state.PeerCertificates[0])
		}
		l.tellFailed(ctx, g, state, err)
		l.reject(limit, g, err)
		return
	}
	if state.NegotiatedProtocol == pki.JoinProtocol {
		l.serveNewcomer(ctx, g, conn)
		return
	}
	if !l.pending.remove(g) {
		return // already closed to make room for another connection
	}
	if len(state.PeerCertificates) == 0 { // only bareConfig and NewPageListener let such a peer in
		l.deliverBare(ctx, g, conn)
		return
	}
	if g.peer, err = pki.Peer(state); err != nil {
		l.tellFailed(ctx, g, state, err)
		l.reject(limit, g, err)
		return
	}
	g.proof = state.PeerCertificates
	l.seen.note(g.peer, g.proof[0])
	l.deliver(ctx, g, conn, state.NegotiatedProtocol)
}

// Reload reads the credentials again (SIGHUP). It closes accepted and dialled connections to peers whose CA is no
// longer trusted, at once. It closes no connection because a certificate has expired. If reading fails, nothing
// changes. Errors: those of Credentials.Reload.
func (l *Listener) Reload() error {
	creds := l.cfg.Credentials
	if err := creds.Reload(); err != nil {
		return err
	}
	ended := creds.dialled.closeIf(func(o *outward) bool { return !creds.Trusts(o.proof) })
	if ended += l.closeIf(func(g *gate) bool { return !creds.Trusts(g.proof) }); ended > 0 {
		l.cfg.Logger.Warn("connections ended: the CA of their certificates is trusted no more", "connections", ended)
	}
	return nil
}

// deliver counts an authenticated connection in the account of its protocol, and gives it to raft or the HTTP server.
// It closes the connection if the account is full, or if nobody takes the connection within HandshakeTimeout.
func (l *Listener) deliver(ctx context.Context, g *gate, conn *tls.Conn, proto string) {
	account, q, refused := l.api, l.apiQ, &l.count.refusedAPI
	if proto == protoRaft {
		account, q, refused = l.raft, l.raftQ, &l.count.refusedRaft
	}
	if !g.enter(account, g.peer.String()) {
		defer func() { _ = g.Close() }()
		if account.shut() { // this server stops
			return
		}
		refused.Add(1)
		l.warn("connection over the limit", "peer", g.peer, "remote", g.source, "protocol", proto)
		return
	}
	// Reload and CloseWhere see the connection from now on. They may have run during the handshake.
	if err := l.cfg.Credentials.recheck(g.peer, g.proof); err != nil {
		l.warn("certificate refused", "remote", g.source, "error", model.Reason(err))
		_ = g.Close()
		return
	}
	if !q.push(ctx, conn, l.cfg.HandshakeTimeout) {
		refused.Add(1)
		_ = g.Close()
	}
}

// reject closes a connection after a failed handshake. A peer with a wrong certificate may still be sending. To close
// at once would reset the connection, and the peer would not get the alert with the reason. A peer that sent plain HTTP
// gets an HTTP error.
func (l *Listener) reject(ctx context.Context, g *gate, err error) {
	defer func() { _ = g.Close() }()
	l.count.failed.Add(1)
	if refused(err) {
		l.warn("certificate refused", "remote", g.source, "error", model.Reason(reach.Explain(g.source, err)))
	} else {
		l.cfg.Logger.Debug("handshake failed", "remote", g.source, "error", err)
	}
	if ctx.Err() != nil {
		return
	}
	if head, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		if !looksLikeHTTP(head.RecordHeader[:]) {
			return
		}
		_ = g.SetWriteDeadline(time.Now().Add(lingerFor))
		_, _ = io.WriteString(g,
			"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\n"+
				"Connection: close\r\n\r\nThis port speaks TLS only: use https.\n")
	}
	linger(g)
}

const lingerFor = 250 * time.Millisecond

// linger gives written bytes time to arrive before the connection is closed. It reads at most 64 KiB, for at most
// lingerFor. While linger runs, a connection whose handshake failed stays pending.
func linger(g *gate) {
	half, ok := g.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = g.SetReadDeadline(time.Now().Add(lingerFor))
	_, _ = io.CopyN(io.Discard, g, 64<<10)
}

// refused reports whether this end refused the peer's certificate. The admission chooses the codes of its refusals.
func refused(err error) bool {
	if _, ok := errors.AsType[*model.Error](err); ok {
		return true
	}
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}

func looksLikeHTTP(head []byte) bool {
	switch string(head) {
	case "GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO", "PRI *":
		return true
	}
	return false
}

// warn logs at most one warning in ten seconds, so that unauthenticated peers can't fill the disk. Other warnings are
// logged at debug level.
func (l *Listener) warn(msg string, kv ...any) {
	if dropped, ok := l.noise.allow(time.Now()); ok {
		l.cfg.Logger.Warn(msg, append(kv, "not_logged", dropped)...)
		return
	}
	l.cfg.Logger.Debug(msg, kv...)
}
