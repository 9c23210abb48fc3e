package door

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

// listenRetry is the pause between two tries to open a port, or to find a place for a connection.
const listenRetry = time.Second

// keepAlive returns settings for TCP probes that detect a vanished peer within 30 s.
func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}
}

// listen opens the service's port as soon as the port is free, and forwards connections until ctx ends. If l is not
// nil, it is the old door's listener for the port, and listen uses it first.
func (s *served) listen(ctx context.Context, l *net.TCPListener) {
	for ctx.Err() == nil {
		if l == nil {
			var lc net.ListenConfig
			taken, err := lc.Listen(ctx, "tcp", s.address)
			if err != nil {
				s.tell(nil, closedCode(err), closedText(s.address, err))
				pause(ctx, listenRetry, nil)
				continue
			}
			l = taken.(*net.TCPListener)
		}
		s.tell(l, "", "")
		s.accept(ctx, l)
		l = nil
	}
	s.tell(nil, "", "")
}

// tell records the listener and the problem of the port, and logs when the kind of problem changes.
func (s *served) tell(l *net.TCPListener, code model.PortCode, problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.code
	s.listener, s.code, s.problem = l, code, problem
	switch {
	case code != "" && code != before:
		s.relay.log.Warn("exposed port is not open", "service", s.name, "address", s.address, "code", code, "reason", problem)
	case code == "" && before != "" && l != nil:
		s.relay.log.Info("exposed port is open", "service", s.name, "address", s.address)
	}
}

func closedCode(err error) model.PortCode {
	if errors.Is(err, unix.EADDRINUSE) {
		return model.PortTaken
	}
	return model.PortFailed
}

func closedText(address string, err error) string {
	if errors.Is(err, unix.EADDRINUSE) {
		return "another process holds " + address
	}
	return address + " can't be listened on: " + err.Error()
}

// accept forwards connections until ctx ends. If accepting fails, it records the problem and tries again.
func (s *served) accept(ctx context.Context, l *net.TCPListener) {
	defer func() { _ = l.Close() }()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	failed := false    // whether the last call of AcceptTCP failed
	for s.place(ctx) { // takes the place first, so that a connection without a place waits in the kernel
		client, err := l.AcceptTCP()
		if err != nil {
			<-s.slots
			if ctx.Err() != nil {
				return
			}
			failed = true
			s.tell(l, model.PortFailed, "connections can't be accepted: "+err.Error())
			if !pause(ctx, listenRetry/10, nil) {
				return
			}
			continue
		}
		if failed {
			failed = false
			s.tell(l, "", "")
		}
		s.relay.open.Add(1)
		s.relay.wg.Go(func() {
			defer func() { s.relay.open.Add(-1); <-s.slots }()
			s.forward(s.relay.conns, client)
		})
	}
}

// place takes a place for one connection. While no place is free, it waits, and once per listenRetry calls closeIdle.
// It returns false if ctx ends.
func (s *served) place(ctx context.Context) bool {
	for ctx.Err() == nil {
		select {
		case s.slots <- struct{}{}:
			return true
		default:
			s.closeIdle()
		}
		t := time.NewTimer(listenRetry)
		select {
		case s.slots <- struct{}{}:
			t.Stop()
			return true
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
	return false
}

// closeIdle resets the connections that have carried no data in either direction for Limits.Idle.
func (s *served) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, since := range s.clients {
		if min(time.Since(since), silence(c)) >= s.relay.limits.Idle {
			reset(c)
		}
	}
}

// silence returns how long a connection has carried no data in either direction. It returns 0 if the kernel does not
// know.
func silence(c *net.TCPConn) time.Duration {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	var info *unix.TCPInfo
	if raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}) != nil || err != nil {
		return 0
	}
	return time.Duration(min(info.Last_data_sent, info.Last_data_recv)) * time.Millisecond
}

// enter adds a connection to the counts. If the source address already has Limits.PerSource connections, it adds none
// and returns false.
func (s *served) enter(client *net.TCPConn, source netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sources[source] >= s.relay.limits.PerSource {
		return false
	}
	s.sources[source]++
	s.clients[client] = time.Now()
	return true
}

func (s *served) leave(client *net.TCPConn, source netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clients, client)
	if s.sources[source]--; s.sources[source] == 0 {
		delete(s.sources, source)
	}
}

// forward connects one client to a backend, and copies data until client and backend have finished. If the client's
// address has too many connections, or no backend can be reached, it resets the client's connection.
func (s *served) forward(ctx context.Context, client *net.TCPConn) {
	defer func() { _ = client.Close() }()
	_ = client.SetKeepAliveConfig(keepAlive()) // otherwise clients that have vanished would keep their places
	source := client.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
	if !s.enter(client, source) {
		s.count(false)
		_ = client.SetLinger(0)
		return
	}
	defer s.leave(client, source)
	dialer := net.Dialer{KeepAliveConfig: keepAlive()}
	conn, b, ok := connect(ctx, s, func(ctx context.Context, address string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", address)
	})
	s.count(ok)
	if !ok {
		_ = client.SetLinger(0) // makes Close reset the connection, because nobody has read the request
		return
	}
	defer s.done(b)
	backend := conn.(*net.TCPConn)
	defer func() { _ = backend.Close() }()
	defer context.AfterFunc(ctx, func() { reset(client, backend) })()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		if err := copyHalf(backend, client); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			reset(client, backend)
		}
	}()
	if copyHalf(client, backend) == nil && delivered(client, asked, s.relay.limits.Stalled) {
		_ = client.SetReadDeadline(time.Now().Add(s.relay.limits.HalfClosed)) // at this time the client is closed, not reset
	} else {
		reset(client, backend)
	}
	<-asked
}

// delivered returns true once the client has received all data that was sent to it, or once done is closed. It returns
// false if the client receives nothing for as long as stalled.
func delivered(client *net.TCPConn, done <-chan struct{}, stalled time.Duration) bool {
	raw, err := client.SyscallConn()
	if err != nil {
		return true
	}
	before, moved := -1, time.Now()
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		left := 0
		if raw.Control(func(fd uintptr) {
			left, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		}) != nil || err != nil || left == 0 {
			return true // the client has received everything, or its connection is closed
		}
		if left != before {
			before, moved = left, time.Now()
		}
		if time.Since(moved) >= stalled {
			return false
		}
		select {
		case <-time.After(wait):
		case <-done:
			return true
		}
	}
}

// copyHalf copies data until the sending peer has finished, and then closes the connection to the receiving peer for
// writing. The kernel moves the bytes (splice), so they need no buffer here.
func copyHalf(to, from *net.TCPConn) error {
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	return to.CloseWrite()
}

// reset closes the connections with a TCP reset, so that neither peer takes a part of the data for all of it.
func reset(conns ...*net.TCPConn) {
	for _, c := range conns {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}
