package transport

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/pki"
)

// RaftStream is the raft side of a Listener: all that hashicorp/raft's StreamLayer needs, except that Dial has another
// name there and takes raft's own address type. Closing it closes every raft connection in both directions.
type RaftStream struct {
	l         *Listener
	dial      Dialer
	advertise net.Addr
	dialled   *budget
}

// maxDialled bounds the raft connections that this server opens. It is far above the number of peers times raft's
// connections per peer, so that only a leak reaches it.
const maxDialled = 1024

// Raft returns the raft side; call it once. advertise (host:port) is the address that peers dial; default the
// listener's own.
func (l *Listener) Raft(d Dialer, advertise string) *RaftStream {
	s := &RaftStream{l: l, dial: d, advertise: l.raw.Addr(), dialled: newBudget(maxDialled, maxDialled)}
	if advertise != "" {
		s.advertise = namedAddr(advertise)
	}
	return s
}

// namedAddr is an address as configured: dialling peers resolve a DNS name in it.
type namedAddr string

func (namedAddr) Network() string  { return "tcp" }
func (a namedAddr) String() string { return string(a) }

// Accept waits for the next connection from a server. After Close it returns net.ErrClosed.
func (s *RaftStream) Accept() (net.Conn, error) { return s.l.raftQ.Accept() }

// Addr returns the advertised address.
func (s *RaftStream) Addr() net.Addr { return s.advertise }

// Close refuses new raft connections and closes the open ones. It does not wait until their readers notice.
func (s *RaftStream) Close() error {
	s.l.raftQ.close()
	s.l.raft.closeAll()
	s.dialled.closeAll()
	return nil
}

// PeerName returns the name in the certificate of the other end of a connection that DialRaft made.
func (s *RaftStream) PeerName(conn net.Conn) string {
	c, ok := conn.(*tls.Conn)
	if !ok {
		return ""
	}
	id, err := pki.Peer(c.ConnectionState())
	if err != nil {
		return ""
	}
	return id.Name
}

// DialRaft connects to another server. It blocks at most timeout, and at most 5 s. Errors: as Dialer.DialRaft;
// net.ErrClosed after Close.
func (s *RaftStream) DialRaft(addr string, timeout time.Duration) (net.Conn, error) {
	if timeout <= 0 || timeout > reach.DialTimeout {
		timeout = reach.DialTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	d := s.dial
	below := d.Dial
	if below == nil {
		below = (&net.Dialer{}).DialContext
	}
	d.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := below(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		g := newGate(raw)
		if !g.enter(s.dialled, addr) {
			_ = g.Close()
			return nil, net.ErrClosed
		}
		return g, nil
	}
	return d.DialRaft(ctx, addr)
}
