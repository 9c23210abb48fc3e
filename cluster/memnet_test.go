package cluster

import (
	"errors"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
)

// memNet is a network in memory that works inside a bubble: streams are net.Pipe, packets are dropped where a real
// network would drop them. A host is an IP address; links are cut by direction.
type memNet struct {
	mu        sync.Mutex
	listeners map[string]*memListener
	packets   map[string]*memPackets
	cuts      map[[2]string]bool
	conns     map[*memConn]struct{}
}

func newMemNet() *memNet {
	return &memNet{
		listeners: map[string]*memListener{}, packets: map[string]*memPackets{},
		cuts: map[[2]string]bool{}, conns: map[*memConn]struct{}{},
	}
}

func hostOf(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	return host
}

// cut drops what from sends to to, and breaks the streams between them.
func (n *memNet) cut(from, to string) {
	n.mu.Lock()
	n.cuts[[2]string{from, to}] = true
	var broken []*memConn
	for c := range n.conns {
		if c.from == from && c.to == to || c.from == to && c.to == from {
			broken = append(broken, c)
		}
	}
	n.mu.Unlock()
	for _, c := range broken {
		c.Close()
	}
}

// isolate cuts host off from every other one, in both directions.
func (n *memNet) isolate(host string, others ...string) {
	for _, other := range others {
		if other != host {
			n.cut(host, other)
			n.cut(other, host)
		}
	}
}

func (n *memNet) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cuts)
}

// reach reports whether from can send to to and hear the answer.
func (n *memNet) reach(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.cuts[[2]string{from, to}] && !n.cuts[[2]string{to, from}]
}

type memAddr string

func (memAddr) Network() string  { return "mem" }
func (a memAddr) String() string { return string(a) }

type memConn struct {
	net.Conn
	net           *memNet
	from, to      string
	local, remote memAddr
	once          sync.Once
}

func (c *memConn) LocalAddr() net.Addr  { return c.local }
func (c *memConn) RemoteAddr() net.Addr { return c.remote }
func (c *memConn) Close() error {
	c.once.Do(func() {
		c.net.mu.Lock()
		delete(c.net.conns, c)
		c.net.mu.Unlock()
	})
	return c.Conn.Close()
}

var errUnreachable = errors.New("host unreachable")

// dial connects from a host to an address.
func (n *memNet) dial(from, to string, timeout time.Duration) (net.Conn, error) {
	if !n.reach(from, hostOf(to)) {
		return nil, errUnreachable
	}
	n.mu.Lock()
	l := n.listeners[to]
	n.mu.Unlock()
	if l == nil {
		return nil, errors.New("connection refused")
	}
	near, far := net.Pipe()
	a := &memConn{Conn: near, net: n, from: from, to: hostOf(to), local: memAddr(from + ":1"), remote: memAddr(to)}
	b := &memConn{Conn: far, net: n, from: hostOf(to), to: from, local: memAddr(to), remote: memAddr(from + ":1")}
	n.mu.Lock()
	n.conns[a], n.conns[b] = struct{}{}, struct{}{}
	n.mu.Unlock()
	select {
	case l.queue <- b:
		return a, nil
	case <-l.done:
		a.Close()
		b.Close()
		return nil, errors.New("connection refused")
	case <-time.After(timeout):
		a.Close()
		b.Close()
		return nil, errors.New("dial timeout")
	}
}

type memListener struct {
	net   *memNet
	addr  string
	queue chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (n *memNet) listen(addr string) *memListener {
	l := &memListener{net: n, addr: addr, queue: make(chan net.Conn), done: make(chan struct{})}
	n.mu.Lock()
	n.listeners[addr] = l
	n.mu.Unlock()
	return l
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Addr() net.Addr { return memAddr(l.addr) }
func (l *memListener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.net.mu.Lock()
		if l.net.listeners[l.addr] == l {
			delete(l.net.listeners, l.addr)
		}
		var mine []*memConn
		for c := range l.net.conns {
			if string(c.local) == l.addr {
				mine = append(mine, c)
			}
		}
		l.net.mu.Unlock()
		for _, c := range mine {
			c.Close()
		}
	})
	return nil
}

// memPackets is a memberlist.Transport. A packet to a host that is cut off, gone or slow is lost.
type memPackets struct {
	net      *memNet
	addr     string
	packetCh chan *memberlist.Packet
	streamCh chan net.Conn
	listener *memListener
	stopped  chan struct{}
}

func (n *memNet) gossip(addr string) *memPackets {
	t := &memPackets{
		net: n, addr: addr, packetCh: make(chan *memberlist.Packet, 256), streamCh: make(chan net.Conn),
		listener: n.listen(addr), stopped: make(chan struct{}),
	}
	n.mu.Lock()
	n.packets[addr] = t
	n.mu.Unlock()
	go func() {
		defer close(t.stopped)
		for {
			c, err := t.listener.Accept()
			if err != nil {
				return
			}
			select {
			case t.streamCh <- c:
			case <-t.listener.done:
				c.Close()
				return
			}
		}
	}()
	return t
}

func (t *memPackets) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	host, port, err := net.SplitHostPort(t.addr)
	if err != nil {
		return nil, 0, err
	}
	n, err := strconv.Atoi(port)
	return net.ParseIP(host), n, err
}

func (t *memPackets) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	t.net.mu.Lock()
	to := t.net.packets[addr]
	lost := to == nil || t.net.cuts[[2]string{hostOf(t.addr), hostOf(addr)}]
	t.net.mu.Unlock()
	if !lost {
		select {
		case to.packetCh <- &memberlist.Packet{Buf: append([]byte(nil), b...), From: memAddr(t.addr), Timestamp: now}:
		default:
		}
	}
	return now, nil
}

func (t *memPackets) PacketCh() <-chan *memberlist.Packet { return t.packetCh }
func (t *memPackets) StreamCh() <-chan net.Conn           { return t.streamCh }

func (t *memPackets) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.net.dial(hostOf(t.addr), addr, timeout)
}

func (t *memPackets) Shutdown() error {
	t.net.mu.Lock()
	if t.net.packets[t.addr] == t {
		delete(t.net.packets, t.addr)
	}
	t.net.mu.Unlock()
	t.listener.Close()
	<-t.stopped
	return nil
}

// inBubble runs a test in fake time. memberlist leaves goroutines that wait for a last timeout when it is shut down;
// a bubble's clock stands still once the test has returned, so they get their minute before.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) })
		test(t)
	})
}

// eventually waits, in fake time or real, until ok says so.
func eventually(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, limit)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
