package memnet

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"
)

// maxQueued is the maximum number of packets that are queued for a member that does not read them. Further packets are
// lost.
const maxQueued = 256

// Packets is a memberlist.Transport. It loses packets to unreachable hosts, packets beyond maxQueued, and the share of
// packets that Net.Lose sets.
type Packets struct {
	net      *Net
	addr     string
	packetCh chan *memberlist.Packet
	streamCh chan net.Conn
	listener *Listener
	stopped  chan struct{} // closed when accept has returned
}

// Packets opens host:port for gossip's packets and streams. Shutdown closes it.
func (n *Net) Packets(addr string) *Packets {
	t := &Packets{
		net: n, addr: addr, packetCh: make(chan *memberlist.Packet, maxQueued), streamCh: make(chan net.Conn),
		listener: n.Listen(addr), stopped: make(chan struct{}),
	}
	n.mu.Lock()
	n.packets[addr] = t
	n.mu.Unlock()
	go t.accept()
	return t
}

func (t *Packets) accept() {
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
}

// FinalAdvertiseAddr implements memberlist.Transport.
func (t *Packets) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	host, port, err := net.SplitHostPort(t.addr)
	if err != nil {
		return nil, 0, err
	}
	n, err := strconv.Atoi(port)
	return net.ParseIP(host), n, err
}

// WriteTo implements memberlist.Transport.
func (t *Packets) WriteTo(b []byte, addr string) (time.Time, error) {
	now := time.Now()
	p := &memberlist.Packet{Buf: append([]byte(nil), b...), From: Addr(t.addr), Timestamp: now}
	n, from, to := t.net, Host(t.addr), Host(addr)
	n.mu.Lock()
	var arrivals []time.Duration
	if n.fault(from, to) == 0 && (n.loss <= 0 || n.random.Float64() >= n.loss) {
		arrivals = n.arrivals(from, to, len(b))
	}
	n.mu.Unlock()
	for _, after := range arrivals {
		if after == 0 {
			n.deliver(p, addr)
			continue
		}
		time.AfterFunc(after, func() { n.deliver(p, addr) })
	}
	return now, nil
}

func (n *Net) deliver(p *memberlist.Packet, addr string) {
	n.mu.Lock()
	to := n.packets[addr]
	n.mu.Unlock()
	if to == nil {
		return
	}
	own := *p // copied, because receivers change packets, and a duplicated packet is delivered twice
	own.Buf = append([]byte(nil), p.Buf...)
	select {
	case to.packetCh <- &own:
	default:
	}
}

// PacketCh implements memberlist.Transport.
func (t *Packets) PacketCh() <-chan *memberlist.Packet { return t.packetCh }

// StreamCh implements memberlist.Transport.
func (t *Packets) StreamCh() <-chan net.Conn { return t.streamCh }

// DialTimeout implements memberlist.Transport.
func (t *Packets) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return t.net.Dial(ctx, Host(t.addr), addr)
}

// Shutdown implements memberlist.Transport. A second call does nothing.
func (t *Packets) Shutdown() error {
	t.net.mu.Lock()
	if t.net.packets[t.addr] == t {
		delete(t.net.packets, t.addr)
	}
	t.net.mu.Unlock()
	_ = t.listener.Close()
	<-t.stopped
	return nil
}
