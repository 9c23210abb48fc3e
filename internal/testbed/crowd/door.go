package crowd

import (
	"context"
	"net"
	"sync"
)

// atTheDoor is how many agents shake hands with a server at the same time. Real machines each have a processor of their
// own and say hello as soon as they are connected; these share one with the servers, and without doors thousands that
// lost their server would be connected, silent, and sent away for it.
const atTheDoor = 16

// dialFrom opens connections for one agent, through the doors and from an address of its own: servers tell strangers
// apart by that.
func (c *Crowd) dialFrom(agent int) func(ctx context.Context, network, address string) (net.Conn, error) {
	source := &net.TCPAddr{IP: net.IPv4(127, 128+byte(agent>>16), byte(agent>>8), byte(agent))}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		select {
		case c.doors <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		leave := sync.OnceFunc(func() { <-c.doors })
		conn, err := (&net.Dialer{LocalAddr: source}).DialContext(ctx, network, address)
		if err != nil {
			leave()
			return nil, err
		}
		return &entering{Conn: conn, leave: leave}, nil
	}
}

// entering is a connection that stands in a door until its client has said all that it says of a handshake of TLS 1.3:
// a hello, and who it is.
type entering struct {
	net.Conn
	said  int
	leave func()
}

// Write implements net.Conn.
func (e *entering) Write(b []byte) (int, error) {
	n, err := e.Conn.Write(b)
	if e.said < 2 {
		if e.said++; e.said == 2 {
			e.leave()
		}
	}
	return n, err
}

// Close implements net.Conn.
func (e *entering) Close() error {
	e.leave()
	return e.Conn.Close()
}
