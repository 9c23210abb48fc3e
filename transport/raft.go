package transport

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/pki"
)

// RaftStream accepts and dials raft connections for hashicorp/raft. It has all methods of raft's StreamLayer except
// Dial. DialRaft does the same for an address that is a string.
type RaftStream struct {
	l         *Listener
	dial      Dialer
	advertise net.Addr
	dialled   *budget
}

// maxDialled bounds the raft connections that this server dials. Raft uses far fewer, so only a leak reaches this
// limit.
const maxDialled = 1024

// Raft returns the stream of raft connections. Call it once. Peers dial the address advertise (host:port), or the
// listener's own address if advertise is empty.
func (l *Listener) Raft(d Dialer, advertise string) *RaftStream {
	s := &RaftStream{l: l, dial: d, advertise: l.raw.Addr(), dialled: newBudget(maxDialled, maxDialled)}
	if advertise != "" {
		s.advertise = namedAddr(advertise)
	}
	return s
}

// namedAddr is an address as configured. If it contains a DNS name, the peers that dial it resolve the name.
type namedAddr string

func (namedAddr) Network() string  { return "tcp" }
func (a namedAddr) String() string { return string(a) }

// Accept waits for the next connection from a server. After Close it returns net.ErrClosed.
func (s *RaftStream) Accept() (net.Conn, error) { return s.l.raftQ.Accept() }

// Addr returns the advertised address.
func (s *RaftStream) Addr() net.Addr { return s.advertise }

// Close refuses new raft connections, and closes all open ones, accepted and dialled. It does not wait until the
// goroutines that read from them notice.
func (s *RaftStream) Close() error {
	s.l.raftQ.close()
	s.l.raft.closeAll()
	s.dialled.closeAll()
	return nil
}

// PeerName returns the name in the peer's certificate, for a connection from Accept or DialRaft. It returns "" for any
// other connection.
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

// Changes is Credentials.Changes.
func (s *RaftStream) Changes() uint64 { return s.dial.Credentials.Changes() }

// DialRaft connects to another server. It blocks for at most timeout, but never longer than 5 s. Errors: those of
// Dialer.DialRaft, and net.ErrClosed after Close or if too many dialled connections are open.
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
