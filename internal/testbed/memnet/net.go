package memnet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Net is a network in memory. New makes one. It is safe for concurrent use.
type Net struct {
	mu        sync.Mutex
	listeners map[string]*Listener // by address
	packets   map[string]*Packets  // by address
	links     map[link]fault       // links with a fault
	shapes    map[link]Shape       // links that are slower or less reliable than the others
	hosts     map[string]fault     // hosts that are off the network
	conns     map[*conn]struct{}   // both ends of every open connection
	change    chan struct{}        // closed and replaced when a fault is removed or a host is killed
	delay     time.Duration        // travel time of packets and stream data; a Shape can add to it
	loss      float64              // share of packets that are lost, 0 to 1
	random    *rand.Rand           // source of all random choices of the network
}

// link is one direction between two hosts.
type link struct{ from, to string }

// fault is the fault of a link or a host.
type fault int

const (
	// faultCut means that nothing passes and both ends notice the fault. Streams break, and dials are refused at once.
	faultCut fault = iota + 1
	// faultDrop means that nothing passes and neither end notices the fault, as with a firewall that drops packets. Data
	// written to a stream arrives once the fault is removed, because TCP would retransmit the data.
	faultDrop
)

// New returns a network without delay, loss or faults.
func New() *Net {
	return &Net{
		listeners: map[string]*Listener{}, packets: map[string]*Packets{}, links: map[link]fault{}, hosts: map[string]fault{},
		conns:  map[*conn]struct{}{},
		shapes: map[link]Shape{}, change: make(chan struct{}), random: rand.New(rand.NewPCG(1, 1)),
	}
}

// SetDelay sets the travel time of everything sent from now on. The default is 0.
func (n *Net) SetDelay(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = d
}

// Lose makes the network lose a share (0 to 1) of the packets sent from now on. Streams lose nothing. Lose also sets
// the seed, as Seed does.
func (n *Net) Lose(share float64, seed uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loss, n.random = share, rand.New(rand.NewPCG(seed, seed))
}

// Host returns the host of an address host:port.
func Host(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	return host
}

// Cut stops everything sent from one host to another. It breaks the streams between them, and dials in both directions
// are refused. Packets in the other direction still arrive.
func (n *Net) Cut(from, to string) {
	n.mu.Lock()
	n.links[link{from, to}] = faultCut
	broken := n.between(from, to)
	n.mu.Unlock()
	for _, c := range broken {
		c.reset()
	}
}

// Isolate cuts host off from others, in both directions.
func (n *Net) Isolate(host string, others ...string) {
	for _, other := range others {
		if other != host {
			n.Cut(host, other)
			n.Cut(other, host)
		}
	}
}

// Drop silently stops everything sent from one host to another. The packets are lost. Stream data, and dials in both
// directions, wait until Mend or Heal.
func (n *Net) Drop(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links[link{from, to}] = faultDrop
	n.hold()
}

// Mend removes every fault and Shape between two hosts, in both directions.
func (n *Net) Mend(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range [...]link{{a, b}, {b, a}} {
		delete(n.links, l)
		delete(n.shapes, l)
	}
	n.hold()
	n.changed()
}

// Heal removes every fault and Shape of all links. Hosts that were taken off the network stay off.
func (n *Net) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.links)
	clear(n.shapes)
	n.hold()
	n.changed()
}

// Kill takes a host off the network until Revive, as when its process dies. The host's streams break, dials from and to
// the host are refused, and packets from and to the host are lost.
func (n *Net) Kill(host string) {
	n.mu.Lock()
	n.hosts[host] = faultCut
	broken := n.of(host)
	n.changed() // wakes waiting dials; those from and to the host then fail
	n.mu.Unlock()
	for _, c := range broken {
		c.reset()
	}
}

// Vanish takes a host off the network until Revive, as when its machine loses power. The other hosts don't notice.
func (n *Net) Vanish(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[host] = faultDrop
	n.hold()
}

// Revive puts a host back on the network after Kill or Vanish. The host's old streams break, because the host has lost
// their state.
func (n *Net) Revive(host string) {
	n.mu.Lock()
	delete(n.hosts, host)
	broken := n.of(host)
	n.hold()
	n.changed()
	n.mu.Unlock()
	for _, c := range broken {
		c.reset()
	}
}

// of returns the streams of a host. n.mu is held.
func (n *Net) of(host string) []*conn {
	var out []*conn
	for c := range n.conns {
		if c.from == host || c.to == host {
			out = append(out, c)
		}
	}
	return out
}

// fault returns what prevents one host from sending to another, or 0 if nothing does. n.mu is held.
func (n *Net) fault(from, to string) fault {
	for _, f := range [...]fault{n.hosts[from], n.hosts[to], n.links[link{from, to}]} {
		if f != 0 {
			return f
		}
	}
	return 0
}

// Reach reports whether one host can send to another and receive answers.
func (n *Net) Reach(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fault(from, to) == 0 && n.fault(to, from) == 0
}

// between returns the streams between two hosts. n.mu is held.
func (n *Net) between(a, b string) []*conn {
	var out []*conn
	for c := range n.conns {
		if c.from == a && c.to == b || c.from == b && c.to == a {
			out = append(out, c)
		}
	}
	return out
}

// hold makes streams in directions with the fault faultDrop hold back their data, and makes all other streams release
// their data. n.mu is held.
func (n *Net) hold() {
	for c := range n.conns {
		c.out.setHeld(n.fault(c.from, c.to) == faultDrop)
	}
}

func (n *Net) changed() {
	close(n.change)
	n.change = make(chan struct{})
}

// Dial connects a host to an address. It blocks until the connection is accepted or refused, or ctx ends. If a link or
// a host silently drops data, Dial waits until the fault is removed.
func (n *Net) Dial(ctx context.Context, from, to string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "mem", Addr: Addr(to), Err: err}
	}
	for {
		n.mu.Lock()
		there, back := n.fault(from, Host(to)), n.fault(Host(to), from)
		l, change := n.listeners[to], n.change
		trip := n.travel(from, Host(to)) + n.travel(Host(to), from)
		n.mu.Unlock()
		switch {
		case there == faultCut || back == faultCut:
			return fail(errUnreachable)
		case there == faultDrop || back == faultDrop:
			select {
			case <-change:
				continue
			case <-ctx.Done():
				return fail(ctx.Err())
			}
		case l == nil:
			return fail(errRefused)
		}
		if trip > 0 { // the travel time in both directions, as for the first two packets of TCP
			timer := time.NewTimer(trip)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return fail(ctx.Err())
			}
		}
		near, far := n.connect(from, to)
		select {
		case l.queue <- far:
			return near, nil
		case <-l.done:
			near.reset()
			return fail(errRefused)
		case <-ctx.Done():
			near.reset()
			return fail(ctx.Err())
		}
	}
}

// Dialer returns a function that dials from one host, in the form of net.Dialer.DialContext.
func (n *Net) Dialer(from string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) { return n.Dial(ctx, from, address) }
}

var (
	errUnreachable = errors.New("host unreachable")
	errRefused     = errors.New("connection refused")
)

// Listener accepts connections to one address.
type Listener struct {
	net   *Net
	addr  string
	queue chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// Listen opens host:port. An earlier listener at the same address gets no more connections.
func (n *Net) Listen(addr string) *Listener {
	l := &Listener{net: n, addr: addr, queue: make(chan net.Conn), done: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[addr] = l
	return l
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return Addr(l.addr) }

// Close implements net.Listener. Accepted connections stay open.
func (l *Listener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.net.mu.Lock()
		defer l.net.mu.Unlock()
		if l.net.listeners[l.addr] == l {
			delete(l.net.listeners, l.addr)
		}
	})
	return nil
}

// CloseAll closes the listener and breaks all connections that were made to its address.
func (l *Listener) CloseAll() error {
	_ = l.Close()
	l.net.mu.Lock()
	var taken []*conn
	for c := range l.net.conns {
		if string(c.local) == l.addr {
			taken = append(taken, c)
		}
	}
	l.net.mu.Unlock()
	for _, c := range taken {
		c.reset()
	}
	return nil
}

// Addr is the address of one end, in the form host:port.
type Addr string

// Network implements net.Addr.
func (Addr) Network() string { return "mem" }

// String implements net.Addr.
func (a Addr) String() string { return string(a) }

// localAddr returns the address of the dialing end. All dials of a host have the same port.
func localAddr(host string) Addr { return Addr(fmt.Sprintf("%s:1", host)) }
