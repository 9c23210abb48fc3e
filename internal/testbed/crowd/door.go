package crowd

import (
	"context"
	"net"
	"sync"
)

// atTheDoor is the maximum number of agents that do a TLS handshake at the same time. A real machine starts its
// handshake as soon as it is connected, but these agents share one processor with the servers. Without the limit,
// thousands of agents that lost their server would connect and then send nothing for too long, and the servers would
// close their connections.
const atTheDoor = 16

// dialFrom returns a function that opens connections for one agent. The function waits while atTheDoor other agents do
// their handshakes. Each agent has its own source address, because a server with too many unfinished handshakes closes
// connections of the address that has the most.
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

// entering is a connection that is counted against atTheDoor until its client has sent both its messages of a TLS 1.3
// handshake, the hello and the certificate.
type entering struct {
	net.Conn
	said  int    // number of writes so far, at most 2
	leave func() // stops counting the connection; may be called more than once
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
