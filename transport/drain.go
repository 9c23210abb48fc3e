package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"slices"
	"time"
)

// When a CA is dropped, the connections to peers with certificates of that CA end. No call may fail by that. So new
// calls of this process use new connections from then on (see Credentials.Changes), and open ones get some time.
const (
	// drainDialled is more than agentCallTime. The peer was trusted when it was asked, and its answer is still wanted.
	drainDialled = 100 * time.Second
	// drainAccepted is short, because a peer that is no longer trusted may make further calls meanwhile. Long polls and
	// streams end at once (see Stopping), and no other call of a member takes longer.
	drainAccepted = 15 * time.Second
)

// Changes returns a number that grows when this process gets another certificate, and when it ceases to trust a CA. A
// call must use no connection that was dialled at a lower number. Otherwise it may fail when the CA of the earlier
// certificate, or that of the peer, is dropped.
func (c *Credentials) Changes() uint64 { return c.changes.Load() }

// drops reports whether a CA of before is missing after.
func drops(before, after [][]byte) bool {
	return slices.ContainsFunc(before, func(ca []byte) bool {
		return !slices.ContainsFunc(after, func(kept []byte) bool { return bytes.Equal(ca, kept) })
	})
}

// onDrop has f called each time after a CA was dropped. f must not block, and must not change the credentials.
func (c *Credentials) onDrop(f func()) {
	c.change.Lock()
	defer c.change.Unlock()
	c.dropped = append(c.dropped, f)
}

// drainUntrusted ends the connections of peers whose CA was dropped, dialled and accepted ones, once they had time to
// finish their calls.
func (c *Credentials) drainUntrusted() {
	for _, o := range c.dialled.list() {
		if !c.Trusts(o.proof) {
			o.drain()
		}
	}
	for _, f := range c.dropped {
		f()
	}
}

// drainUntrusted does for accepted connections what Credentials.drainUntrusted does.
func (l *Listener) drainUntrusted() {
	drained := 0
	for _, g := range slices.Concat(l.api.list(), l.raft.list()) {
		if !l.cfg.Credentials.Trusts(g.proof) {
			g.drain()
			drained++
		}
	}
	if drained > 0 {
		l.cfg.Logger.Info("connections end soon: the CA of their certificates is trusted no more",
			"connections", drained, "within", drainAccepted)
	}
}

// drain closes the connection after drainDialled, unless somebody does so earlier.
func (o *outward) drain() {
	o.account.mu.Lock()
	defer o.account.mu.Unlock()
	if _, open := o.account.open[o]; open && o.ending == nil {
		o.ending = time.AfterFunc(drainDialled, func() { _ = o.Close() })
	}
}

// drain makes long polls and streams of the connection end, and closes it after drainAccepted, unless somebody does so
// earlier.
func (g *gate) drain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.ending != nil {
		return
	}
	g.ending = time.AfterFunc(drainAccepted, func() { _ = g.Close() })
	if g.stop != nil {
		g.stop()
	}
}

// untilDrained returns a context that ends when parent ends, when drain is called, or when the connection is closed.
// Call it once.
func (g *gate) untilDrained(parent context.Context) context.Context {
	ctx, cancel := context.WithCancel(parent)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stop = cancel
	if g.closed || g.ending != nil {
		cancel()
	}
	return ctx
}

// gateOf returns the gate below a connection of a Listener, or nil.
func gateOf(conn net.Conn) *gate {
	if c, ok := conn.(*tls.Conn); ok {
		conn = c.NetConn()
	}
	if c, ok := conn.(*limitedConn); ok {
		conn = c.Conn
	}
	g, _ := conn.(*gate)
	return g
}
