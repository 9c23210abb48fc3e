package transport

import (
	"context"
	"net"
	"slices"
	"sync"
)

// handshakeLimiter limits how many handshakes compute at once. A handshake that waits for its peer needs no turn. If
// thousands of agents return in one moment and all handshakes advance together, all of them time out together. Then the
// agents start over, and raft's connections wait for hundreds of other handshakes. So handshakes that have begun are
// finished first, and those that have to wait have cost nothing.
type handshakeLimiter struct {
	mu        sync.Mutex
	free      int
	finishing []chan struct{} // oldest first
	beginning []chan struct{} // oldest first; the newest is taken first, since the oldest has the least time left
}

func newHandshakeLimiter(n int) *handshakeLimiter { return &handshakeLimiter{free: max(1, n)} }

// take blocks until it is the caller's turn, or until ctx ends, and then returns ctx's error. begun says that the
// handshake has had a turn before.
func (t *handshakeLimiter) take(ctx context.Context, begun bool) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	called := make(chan struct{})
	if begun {
		t.finishing = append(t.finishing, called)
	} else {
		t.beginning = append(t.beginning, called)
	}
	t.mu.Unlock()
	select {
	case <-called:
		return nil
	case <-ctx.Done():
		t.forget(called)
		return ctx.Err()
	}
}

// forget stops waiting. It passes on a turn that came at the same moment.
func (t *handshakeLimiter) forget(called chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, line := range [...]*[]chan struct{}{&t.finishing, &t.beginning} {
		if i := slices.Index(*line, called); i >= 0 {
			*line = slices.Delete(*line, i, i+1)
			return
		}
	}
	t.pass()
}

// give ends a turn.
func (t *handshakeLimiter) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass()
}

// pass gives the turn to the next handshake; t.mu is held.
func (t *handshakeLimiter) pass() {
	var next chan struct{}
	switch n := len(t.beginning); {
	case len(t.finishing) > 0:
		next, t.finishing = t.finishing[0], t.finishing[1:]
	case n > 0:
		next, t.beginning = t.beginning[n-1], t.beginning[:n-1]
	default:
		t.free++
		return
	}
	close(next)
}

// limitedConn is a connection during its handshake. The handshake holds a turn except while it reads or writes. Only
// one goroutine may use it.
type limitedConn struct {
	net.Conn
	ctx     context.Context   // of the handshake
	limiter *handshakeLimiter // nil: the handshake is over
	held    bool
	begun   bool
}

// Read implements net.Conn.
func (c *limitedConn) Read(b []byte) (int, error) {
	c.pause()
	n, err := c.Conn.Read(b)
	return n, c.resume(err)
}

// Write implements net.Conn.
func (c *limitedConn) Write(b []byte) (int, error) {
	c.pause()
	n, err := c.Conn.Write(b)
	return n, c.resume(err)
}

// over ends the last turn. From now on the connection is a plain one.
func (c *limitedConn) over() {
	c.pause()
	c.limiter, c.ctx = nil, nil
}

func (c *limitedConn) pause() {
	if c.held {
		c.held = false
		c.limiter.give()
	}
}

// resume waits for a turn unless the connection has failed.
func (c *limitedConn) resume(err error) error {
	if err != nil || c.limiter == nil {
		return err
	}
	if err := c.limiter.take(c.ctx, c.begun); err != nil {
		return err
	}
	c.held, c.begun = true, true
	return nil
}
