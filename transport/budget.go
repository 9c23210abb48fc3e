package transport

import (
	"container/list"
	"context"
	"crypto/x509"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outspan/outspan/pki"
)

// gate is a connection below TLS that belongs to an account until it is closed, whether http.Server, raft or a limit
// closes it. It is below TLS because net/http needs the *tls.Conn itself.
type gate struct {
	net.Conn
	source string              // SourceOf the peer's address
	host   string              // HostOf the peer's address
	since  time.Time           // when waiting admitted it
	peer   pki.Identity        // set before the gate enters the account of raft or the API, as is proof
	proof  []*x509.Certificate // the peer's certificates, its own first
	bare   *bareAccounts       // nil if the peer has a certificate; set before the gate enters its account
	proved atomic.Bool         // the peer without a certificate has shown a good token

	mu      sync.Mutex
	closed  bool
	leave   func(*gate)
	ending  *time.Timer        // closes it; nil before drain
	proving *time.Timer        // closes it, see endAfter; nil if the peer has a certificate
	stop    context.CancelFunc // ends the context of untilDrained; nil if there is none
}

func newGate(c net.Conn) *gate {
	return &gate{Conn: c, source: SourceOf(c.RemoteAddr()), host: HostOf(c.RemoteAddr())}
}

// SourceOf returns what identifies a peer to limits before the peer has proved who it is: its IPv4 address, or the
// first 64 bits of its IPv6 address, because one machine usually has all addresses of such a network.
func SourceOf(a net.Addr) string {
	host := HostOf(a)
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Is4() {
		return host
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}

// HostOf returns the IP address of a peer, without a port or zone. For IPv4 the result equals that of SourceOf. If a
// has no IP address, HostOf returns its text without the port. For nil it returns an empty string.
func HostOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	text := a.String()
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return text
	}
	return ip.Unmap().WithZone("").String()
}

// Close closes the connection and removes it from its account. It may be called many times, also concurrently. A call
// returns only when the connection is closed and removed, even if another call does this work.
func (g *gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.Conn.Close()
	if !g.closed && g.leave != nil {
		g.leave(g)
	}
	g.closed = true
	if g.ending != nil {
		g.ending.Stop()
	}
	if g.proving != nil {
		g.proving.Stop()
	}
	if g.stop != nil {
		g.stop()
	}
	return err
}

// enter puts the gate into an account, under the name peer. It returns false if the gate or the account is closed, or
// if one of the account's limits is reached.
func (g *gate) enter(account *budget, peer string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || !account.add(g, peer) {
		return false
	}
	g.leave = account.remove
	return true
}

// budget limits the number of open connections of one kind: in total, per peer, and optionally per IPv6 address. At a
// limit it refuses new connections and keeps the open ones.
type budget struct {
	mu      sync.Mutex
	max     int
	perPeer int
	perHost int // per IPv6 address; 0 means no such limit
	closed  bool
	open    map[*gate]string
	peers   map[string]int
	hosts   map[string]int
}

func newBudget(limit, perPeer int) *budget {
	return &budget{max: limit, perPeer: perPeer, open: map[*gate]string{}, peers: map[string]int{},
		hosts: map[string]int{}}
}

func (b *budget) setMax(limit, perPeer int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.max, b.perPeer = limit, perPeer
}

func (b *budget) add(g *gate, peer string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(b.open) >= b.max || b.peers[peer] >= b.perPeer ||
		b.perHost > 0 && g.host != g.source && b.hosts[g.host] >= b.perHost {
		return false
	}
	b.open[g] = peer
	b.peers[peer]++
	b.hosts[g.host]++
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
	if b.hosts[g.host]--; b.hosts[g.host] == 0 {
		delete(b.hosts, g.host)
	}
}

// shut reports whether closeAll was called.
func (b *budget) shut() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

func (b *budget) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)
}

// closeIf closes the connections for which wrong returns true, and returns their number.
func (b *budget) closeIf(wrong func(*gate) bool) (closed int) {
	for _, g := range b.list() { // without mu: wrong takes time, and a gate's Close calls remove, which locks mu
		if wrong(g) {
			closed++
			_ = g.Close()
		}
	}
	return closed
}

// list returns the connections that are open.
func (b *budget) list() []*gate {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.open))
}

// closeAll refuses new connections from now on and closes the open ones.
func (b *budget) closeAll() {
	b.mu.Lock()
	b.closed = true
	all := make([]*gate, 0, len(b.open))
	for g := range b.open {
		all = append(all, g)
	}
	b.mu.Unlock() // a gate's Close calls remove, which locks mu
	for _, g := range all {
		_ = g.Close()
	}
}

// waiting has the connections that have not yet proved their identity. When it is full, it admits a new connection and
// closes the oldest one of the largest crowd. A crowd is all connections of one source (SourceOf) that have sent a
// whole TLS hello, or all connections of that source that have not. So a crowd of silent connections loses its own
// connections first, and not a handshake that makes progress. No connection is closed in its first 100 ms (minStay): in
// a burst, new connections wait in the kernel's queue instead.
type waiting struct {
	mu     sync.Mutex
	max    int
	order  *list.List // of *gate, oldest first
	places map[*gate]place
	crowds map[connGroup]int
	freed  chan struct{} // contains a token when a place may have become free
}

// minStay is enough time for a hello that is on its way. Of connections that never prove their identity, at most
// MaxPending are admitted per minStay, by default 2,560 per second.
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

// add admits g. A victim that is not nil had to make room, and the caller must close it. If wait is above 0, no
// connection may be closed yet: g is not admitted, and the caller must call add again after wait, or earlier if a place
// becomes free.
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

// heard records that g has sent a whole hello.
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

// remove removes g. It returns false if g was removed before, for example to make room.
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
