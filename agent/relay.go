package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// listenRetry is the pause after a port could not be taken, or a connection not be accepted.
	listenRetry = time.Second
	// halfClosed is how long a client may keep its half open after it has got all that the backend sent.
	halfClosed = time.Minute
)

// keepAlive finds a peer whose machine is gone, within 30 s.
func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}
}

// listen takes the service's port, as soon as it can, and forwards what comes, until ctx ends. conns is the context of
// the connections.
func (s *served) listen(ctx, conns context.Context) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive()}
	address := hostPort(s.forward.address, s.port)
	for ctx.Err() == nil {
		l, err := lc.Listen(ctx, "tcp", address)
		if err != nil {
			if ctx.Err() == nil {
				s.forward.log.Warn("port of a service can't be taken", "service", s.name, "address", address, "error", err)
				s.forward.problem(s.part(), "port "+address+" can't be taken: "+err.Error())
				sleep(ctx, listenRetry, nil)
			}
			continue
		}
		s.forward.problem(s.part(), "")
		s.accept(ctx, conns, l.(*net.TCPListener))
	}
}

// accept forwards until ctx ends or the listener fails.
func (s *served) accept(ctx, conns context.Context, l *net.TCPListener) {
	defer func() { _ = l.Close() }()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		select { // a slot first: what has none waits in the kernel
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		client, err := l.AcceptTCP()
		if err != nil {
			<-s.slots
			if ctx.Err() != nil {
				return
			}
			s.forward.log.Warn("connection could not be accepted", "service", s.name, "error", err)
			if !sleep(ctx, listenRetry/10, nil) {
				return
			}
			continue
		}
		s.forward.wg.Go(func() {
			defer func() { <-s.slots }()
			s.relay(conns, client)
		})
	}
}

// relay connects one client to a backend and copies until both have finished.
func (s *served) relay(ctx context.Context, client *net.TCPConn) {
	defer func() { _ = client.Close() }()
	s.opened(1)
	defer s.opened(-1)
	dialer := net.Dialer{KeepAliveConfig: keepAlive()}
	conn, b, ok := connect(ctx, s, func(ctx context.Context, address string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", address)
	})
	s.count(ok)
	if !ok {
		_ = client.SetLinger(0) // a reset: nobody has read the request
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
	if copyHalf(client, backend) != nil {
		reset(client, backend)
	} else if delivered(client, asked) {
		_ = client.SetReadDeadline(time.Now().Add(s.forward.halfClosed)) // then it is closed, not reset
	}
	<-asked
}

// delivered waits until a client has got all that was sent to it, however slowly it reads. It returns false if done is closed before.
func delivered(client *net.TCPConn, done <-chan struct{}) bool {
	raw, err := client.SyscallConn()
	if err != nil {
		return false
	}
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		left := 0
		if raw.Control(func(fd uintptr) { left, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }) != nil || err != nil {
			return false // it was closed
		}
		if left == 0 {
			return true
		}
		select {
		case <-time.After(pause):
		case <-done:
			return false
		}
	}
}

// copyHalf copies one direction to its end and passes the end on. The kernel moves the bytes (splice), so no buffer
// grows here.
func copyHalf(to, from *net.TCPConn) error {
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	return to.CloseWrite()
}

// reset ends both sides so that neither takes what it got for the whole.
func reset(conns ...*net.TCPConn) {
	for _, c := range conns {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}
