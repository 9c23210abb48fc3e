package transport

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"
)

// handshakeLimiter limits how many TLS handshakes compute at once. A handshake computes only while it has a turn, and
// gives the turn back while it waits for its peer. Without a limit, thousands of agents that connect at once would slow
// each other down until all handshakes time out and start over. Raft's connections would be slowed down too.
type handshakeLimiter struct {
	mu   sync.Mutex
	free int
	// finishing has the handshakes that wait for a further turn. They are served before those in beginning, the oldest
	// first.
	finishing []chan struct{}
	// beginning has the handshakes that wait for their first turn. The newest gets the next turn, because the oldest has
	// the least time left before it times out.
	beginning []chan struct{}
}

func newHandshakeLimiter(n int) *handshakeLimiter { return &handshakeLimiter{free: max(1, n)} }

// take blocks until the caller gets a turn. If ctx ends first, take returns ctx's error. If begun is true, the
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

// forget removes a handshake whose context has ended. If the handshake has been given a turn meanwhile, forget passes
// the turn on.
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

// give ends the caller's turn.
func (t *handshakeLimiter) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass()
}

// pass gives a free turn to the next handshake. If no handshake waits, the turn stays free. The caller holds t.mu.
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

// limitedConn is a connection that takes turns during its TLS handshake. After each read or write, the handshake needs
// a turn to continue. During the handshake, only one goroutine may use a limitedConn.
type limitedConn struct {
	net.Conn
	ctx     context.Context   // context of the handshake
	limiter *handshakeLimiter // nil after the handshake, as is ctx
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

// over ends the last turn. Later reads and writes need no turn.
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

// resume waits for a turn, unless the read or write failed or the handshake is over.
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

// throttle lets one of many equal log lines pass every 10 s, and counts the others. It is safe for concurrent use.
type throttle struct {
	mu      sync.Mutex
	next    time.Time
	dropped int
}

func (t *throttle) allow(now time.Time) (dropped int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.next) {
		t.dropped++
		return 0, false
	}
	dropped, t.dropped, t.next = t.dropped, 0, now.Add(10*time.Second)
	return dropped, true
}
