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
	mu      sync.Mutex
	free    int
	waiting []*handshakeTurn // in the order in which they came
	crowds  map[string]int   // how many of them each source has
}

// handshakeTurn is a handshake that waits for a turn.
type handshakeTurn struct {
	source string
	begun  bool          // it has had a turn before
	called chan struct{} // closed when the turn begins
}

func newHandshakeLimiter(n int) *handshakeLimiter {
	return &handshakeLimiter{free: max(1, n), crowds: map[string]int{}}
}

// take blocks until the caller gets a turn. If ctx ends first, take returns ctx's error. If begun is true, the
// handshake has had a turn before. source is the SourceOf its peer.
func (t *handshakeLimiter) take(ctx context.Context, source string, begun bool) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	one := &handshakeTurn{source: source, begun: begun, called: make(chan struct{})}
	t.waiting = append(t.waiting, one)
	t.crowds[source]++
	t.mu.Unlock()
	select {
	case <-one.called:
		return nil
	case <-ctx.Done():
		t.forget(one)
		return ctx.Err()
	}
}

// forget removes a handshake whose context has ended. If the handshake has been given a turn meanwhile, forget passes
// the turn on.
func (t *handshakeLimiter) forget(one *handshakeTurn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, one); i >= 0 {
		t.remove(i)
		return
	}
	t.pass()
}

// remove removes a handshake from those that wait. The caller holds t.mu.
func (t *handshakeLimiter) remove(i int) {
	source := t.waiting[i].source
	t.waiting = slices.Delete(t.waiting, i, i+1)
	if t.crowds[source]--; t.crowds[source] == 0 {
		delete(t.crowds, source)
	}
}

// give ends the caller's turn.
func (t *handshakeLimiter) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass()
}

// pass gives a free turn to the next handshake. If no handshake waits, the turn stays free. The caller holds t.mu.
func (t *handshakeLimiter) pass() {
	next := -1
	for i := range t.waiting {
		if next < 0 || t.before(i, next) {
			next = i
		}
	}
	if next < 0 {
		t.free++
		return
	}
	close(t.waiting[next].called)
	t.remove(next)
}

// before reports whether the handshake at i gets a turn before the one at j, which has waited longer. A source of which
// fewer handshakes wait comes first, so a flood of connections delays itself and not others. Of equal ones, those that
// have begun come first, the oldest of them before the others. Then comes the newest, because the oldest has the least
// time left before it times out.
func (t *handshakeLimiter) before(i, j int) bool {
	a, b := t.waiting[i], t.waiting[j]
	if x, y := t.crowds[a.source], t.crowds[b.source]; x != y {
		return x < y
	}
	return !b.begun
}

// limitedConn is a connection that takes turns during its TLS handshake. After each read or write, the handshake needs
// a turn to continue. During the handshake, only one goroutine may use a limitedConn.
type limitedConn struct {
	net.Conn
	ctx     context.Context   // context of the handshake
	source  string            // SourceOf the peer
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
	if err := c.limiter.take(c.ctx, c.source, c.begun); err != nil {
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
