package transport

import (
	"container/list"
	"crypto/x509"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// gate is a raw connection that leaves its account when it is closed, whether http.Server, raft or a limit closes it.
// It lies below TLS, because net/http needs the *tls.Conn itself.
type gate struct {
	net.Conn
	source string              // address without the port
	since  time.Time           // when it was admitted
	proof  []*x509.Certificate // the peer's certificates; set before it enters an account

	mu     sync.Mutex
	closed bool
	leave  func(*gate)
}

func newGate(c net.Conn) *gate {
	g := &gate{Conn: c}
	if a := c.RemoteAddr(); a != nil {
		g.source = a.String()
		if host, _, err := net.SplitHostPort(g.source); err == nil {
			g.source = host
		}
	}
	return g
}

// Close closes the connection and leaves its account. It is safe to call many times. Every call returns only when both
// are done, because a second caller waits for the first.
func (g *gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.Conn.Close()
	if !g.closed && g.leave != nil {
		g.leave(g)
	}
	g.closed = true
	return err
}

// enter puts the gate into an account. It returns false if the gate is closed already or the account is full.
func (g *gate) enter(account *budget, peer string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || !account.add(g, peer) {
		return false
	}
	g.leave = account.remove
	return true
}

// budget counts open connections of one kind, in total and per peer. Above a limit it refuses new connections, because
// the open ones have proved their identity and do work.
type budget struct {
	mu      sync.Mutex
	max     int
	perPeer int
	closed  bool
	open    map[*gate]string
	peers   map[string]int
}

func newBudget(limit, perPeer int) *budget {
	return &budget{max: limit, perPeer: perPeer, open: map[*gate]string{}, peers: map[string]int{}}
}

func (b *budget) setMax(limit, perPeer int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.max, b.perPeer = limit, perPeer
}

func (b *budget) add(g *gate, peer string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(b.open) >= b.max || b.peers[peer] >= b.perPeer {
		return false
	}
	b.open[g] = peer
	b.peers[peer]++
	return true
}

func (b *budget) remove(g *gate) {
	b.mu.Lock()
	defer b.mu.Unlock()
	peer, ok := b.open[g]
	if !ok {
		return
	}
	delete(b.open, g)
	if b.peers[peer]--; b.peers[peer] == 0 {
		delete(b.peers, peer)
	}
}

func (b *budget) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)
}

// closeIf closes the connections for which wrong returns true. It returns how many it closed.
func (b *budget) closeIf(wrong func(*gate) bool) (closed int) {
	b.mu.Lock()
	list := slices.Collect(maps.Keys(b.open))
	b.mu.Unlock() // wrong takes time, and a gate's Close calls remove
	for _, g := range list {
		if wrong(g) {
			closed++
			_ = g.Close()
		}
	}
	return closed
}

// closeAll refuses new connections from now on and closes the open ones.
func (b *budget) closeAll() {
	b.mu.Lock()
	b.closed = true
	all := make([]*gate, 0, len(b.open))
	for g := range b.open {
		all = append(all, g)
	}
	b.mu.Unlock() // a gate's Close calls remove
	for _, g := range all {
		_ = g.Close()
	}
}

// waiting holds the connections that have not yet proved their identity. When it is full, it admits a newcomer and
// closes another connection: the oldest of the largest crowd. A crowd is all connections of one source address that
// have sent a whole hello, or all that have not. So a crowd of silent connections pushes out its own, and not a
// handshake that makes progress. No connection is closed before minStay: in a burst, newcomers wait in the kernel's
// queue instead.
type waiting struct {
	mu     sync.Mutex
	max    int
	order  *list.List // of *gate, oldest first
	places map[*gate]place
	crowds map[connGroup]int
	freed  chan struct{} // holds a token when a place may have become free
}

// minStay is enough to read a hello that is under way. With MaxPending it bounds how many new connections are admitted
// each second: 2,560 by default.
const minStay = 100 * time.Millisecond

type connGroup struct {
	source string
	hello  bool
}

type place struct {
	at    *list.Element
	crowd connGroup
}

func newWaiting(limit int) *waiting {
	return &waiting{
		max: limit, order: list.New(), places: map[*gate]place{}, crowds: map[connGroup]int{}, freed: make(chan struct{}, 1),
	}
}

func (w *waiting) setMax(limit int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.max = limit
}

// add admits g. It returns the connection that the caller must close to make room, or nil. If no connection may be
// closed yet, g is not admitted, and the caller must call add again after at most the time wait.
func (w *waiting) add(g *gate) (victim *gate, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.order.Len() >= w.max {
		victim = w.oldestOf(w.largest())
		if wait = time.Until(victim.since.Add(minStay)); wait > 0 {
			return nil, wait
		}
		w.drop(victim)
	}
	g.since = time.Now()
	c := connGroup{source: g.source}
	w.places[g] = place{at: w.order.PushBack(g), crowd: c}
	w.crowds[c]++
	return victim, 0
}

// heard notes that g sent a whole hello.
func (w *waiting) heard(g *gate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.places[g]
	if !ok {
		return
	}
	w.leave(p.crowd)
	p.crowd.hello = true
	w.crowds[p.crowd]++
	w.places[g] = p
}

func (w *waiting) leave(c connGroup) {
	if w.crowds[c]--; w.crowds[c] == 0 {
		delete(w.crowds, c)
	}
}

func (w *waiting) largest() (c connGroup) {
	most := 0
	for candidate, n := range w.crowds {
		if n > most {
			c, most = candidate, n
		}
	}
	return c
}

func (w *waiting) oldestOf(c connGroup) *gate {
	for e := w.order.Front(); ; e = e.Next() {
		if g := e.Value.(*gate); w.places[g].crowd == c {
			return g
		}
	}
}

// remove takes g out. It returns false if g was already pushed out.
func (w *waiting) remove(g *gate) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.drop(g)
}

func (w *waiting) drop(g *gate) bool {
	p, ok := w.places[g]
	if !ok {
		return false
	}
	w.order.Remove(p.at)
	delete(w.places, g)
	w.leave(p.crowd)
	select {
	case w.freed <- struct{}{}:
	default:
	}
	return true
}

func (w *waiting) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.order.Len()
}

func (w *waiting) closeAll() {
	w.mu.Lock()
	all := make([]*gate, 0, w.order.Len())
	for g := range w.places {
		all = append(all, g)
	}
	w.mu.Unlock()
	for _, g := range all {
		_ = g.Close()
	}
}
