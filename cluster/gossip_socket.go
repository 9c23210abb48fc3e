package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-metrics"
	"github.com/hashicorp/go-sockaddr"
	"github.com/hashicorp/memberlist"
)

const (
	packetSize    = 64 << 10 // bytes; no UDP packet is larger
	packetsBuffer = 2 << 20  // bytes; what is requested as the kernel's receive buffer
	portAttempts  = 10       // to find a port that is free for UDP and TCP, if no port is configured
)

// socket is a memberlist transport over UDP and TCP, on the same port number. It screens everything that it receives.
// It replaces memberlist's own transport, which allocates 64 KiB for each packet. With the heartbeats of 1,000 agents,
// these buffers were two thirds of a server's allocations.
type socket struct {
	log     hclog.Logger
	tcp     *net.TCPListener
	udp     *net.UDPConn
	packets chan *memberlist.Packet
	streams chan net.Conn
	limits  *streamLimits
	screen  *screen
	closed  chan struct{}
	once    sync.Once
	wg      sync.WaitGroup
}

var _ memberlist.NodeAwareTransport = (*socket)(nil)

// openSocket listens on a port for UDP and TCP. If port is 0, it chooses a port that is free for both. Incoming
// messages must pass looks. The caller must call Shutdown.
func openSocket(address string, port int, looks *screen, log hclog.Logger) (*socket, error) {
	ip := net.ParseIP(address)
	if ip == nil {
		return nil, fmt.Errorf("%q is no IP address", address)
	}
	attempts := 1
	if port == 0 {
		attempts = portAttempts
	}
	var failed error
	for range attempts {
		s, err := listenBoth(ip, port, log)
		if err == nil {
			s.screen = looks
			s.wg.Go(s.receive)
			s.wg.Go(s.accept)
			return s, nil
		}
		if failed = err; !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return nil, failed
}

// GossipPortFree reports whether a pool could listen on a port now, for UDP and TCP. It opens the port for a moment. If
// address is no IP address, it tries 0.0.0.0.
func GossipPortFree(address string, port int) bool {
	ip := net.ParseIP(address)
	if ip == nil {
		ip = net.IPv4zero
	}
	s, err := listenBoth(ip, port, hclog.NewNullLogger())
	if err != nil {
		return false
	}
	_ = s.tcp.Close() // even if closing fails, the port was free
	_ = s.udp.Close()
	return true
}

func listenBoth(ip net.IP, port int, log hclog.Logger) (*socket, error) {
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: ip, Port: port})
	if err != nil {
		return nil, fmt.Errorf("listen for streams: %w", err)
	}
	s := &socket{
		log: log, tcp: tcp, packets: make(chan *memberlist.Packet), streams: make(chan net.Conn), limits: newStreamLimits(),
		closed: make(chan struct{}),
	}
	if s.udp, err = net.ListenUDP("udp", &net.UDPAddr{IP: ip, Port: s.port()}); err != nil {
		_ = tcp.Close()
		return nil, fmt.Errorf("listen for packets: %w", err)
	}
	size := packetsBuffer
	for size > 0 && s.udp.SetReadBuffer(size) != nil { // the kernel may grant only a smaller buffer
		size /= 2
	}
	return s, nil
}

func (s *socket) port() int {
	if at, ok := s.tcp.Addr().(*net.TCPAddr); ok {
		return at.Port
	}
	return 0
}

// receive passes packets to memberlist until the socket is closed, except those that the screen refuses. It passes
// copies, because memberlist keeps a packet while receive uses its buffer again.
func (s *socket) receive() {
	buf := make([]byte, packetSize)
	for {
		n, from, err := s.udp.ReadFromUDPAddrPort(buf)
		now := time.Now()
		switch {
		case s.over():
			return
		case err != nil:
			s.log.Debug("can't read a packet", "error", err)
			s.pause()
			continue
		case n == 0:
			continue
		}
		metrics.IncrCounter([]string{"memberlist", "udp", "received"}, float32(n))
		if err := s.screen.packet(buf[:n]); err != nil {
			countRefusedPacket()
			s.log.Debug("refuse a gossip packet", "remote", from, "error", err)
			continue
		}
		one := &memberlist.Packet{Buf: append(make([]byte, 0, n), buf[:n]...),
			From: net.UDPAddrFromAddrPort(from), Timestamp: now}
		select {
		case s.packets <- one:
		case <-s.closed:
			return
		}
	}
}

func (s *socket) accept() {
	for {
		conn, err := s.tcp.AcceptTCP()
		switch {
		case s.over():
			if err == nil {
				_ = conn.Close()
			}
			return
		case err != nil:
			s.log.Debug("can't accept a stream", "error", err)
			s.pause()
			continue
		}
		stream, ok := s.limits.admit(conn)
		if !ok {
			s.log.Debug("refuse a stream: too many are open", "remote", conn.RemoteAddr())
			_ = conn.Close()
			continue
		}
		select {
		case s.streams <- &screenedStream{Conn: stream, screen: s.screen}:
		case <-s.closed:
			_ = stream.Close()
			return
		}
	}
}

func (s *socket) over() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// pause waits 100 ms, or until the socket is closed. Without it, a lasting error such as too many open files would keep
// a core busy.
func (s *socket) pause() {
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.closed:
	}
}

// FinalAdvertiseAddr implements memberlist.Transport.
func (s *socket) FinalAdvertiseAddr(address string, port int) (net.IP, int, error) {
	if address == "" {
		if at, ok := s.tcp.Addr().(*net.TCPAddr); ok && !at.IP.IsUnspecified() {
			return at.IP, at.Port, nil
		}
		var err error
		if address, err = sockaddr.GetPrivateIP(); err != nil {
			return nil, 0, fmt.Errorf("no private address of this machine is known; set advertise: %w", err)
		}
		if address == "" {
			return nil, 0, errors.New("this machine has no private address; set advertise")
		}
		port = 0
	}
	ip := net.ParseIP(address)
	if ip == nil {
		return nil, 0, fmt.Errorf("%q is no IP address", address)
	}
	if short := ip.To4(); short != nil {
		ip = short
	}
	if port == 0 {
		port = s.port()
	}
	return ip, port, nil
}

// WriteTo implements memberlist.Transport.
func (s *socket) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil { // addr has a host name
		found, err := net.ResolveUDPAddr("udp", addr)
		if err != nil {
			return time.Time{}, err
		}
		to = found.AddrPort()
	}
	_, err = s.udp.WriteToUDPAddrPort(b, to)
	return time.Now(), err
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (s *socket) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	return s.WriteTo(b, to.Addr)
}

// PacketCh implements memberlist.Transport.
func (s *socket) PacketCh() <-chan *memberlist.Packet { return s.packets }

// DialTimeout implements memberlist.Transport.
func (s *socket) DialTimeout(addr string, limit time.Duration) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: limit}).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &screenedStream{Conn: conn, screen: s.screen}, nil // memberlist authenticates the other end by the gossip key
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (s *socket) DialAddressTimeout(to memberlist.Address, limit time.Duration) (net.Conn, error) {
	return s.DialTimeout(to.Addr, limit)
}

// StreamCh implements memberlist.Transport.
func (s *socket) StreamCh() <-chan net.Conn { return s.streams }

// Shutdown implements memberlist.Transport. It returns after the socket's goroutines have ended. It may be called more
// than once.
func (s *socket) Shutdown() error {
	s.once.Do(func() {
		close(s.closed)
		_ = s.tcp.Close() // the descriptor is closed even if Close returns an error
		_ = s.udp.Close()
	})
	s.wg.Wait()
	return nil
}
