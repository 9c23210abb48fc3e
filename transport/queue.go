package transport

import (
	"context"
	"net"
	"sync"
	"time"
)

// queue is a net.Listener that hands out the authenticated connections of a Listener. The API has one, and raft
// another.
type queue struct {
	addr net.Addr
	ch   chan net.Conn // unbuffered: push knows whether Accept has taken the connection
	done chan struct{}
	once sync.Once
}

func newQueue(addr net.Addr) *queue {
	return &queue{addr: addr, ch: make(chan net.Conn), done: make(chan struct{})}
}

// Accept implements net.Listener; after Close it returns net.ErrClosed.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.ch:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It does not close connections that Accept has returned.
func (q *queue) Close() error {
	q.close()
	return nil
}

func (q *queue) close() { q.once.Do(func() { close(q.done) }) }

// Addr implements net.Listener.
func (q *queue) Addr() net.Addr { return q.addr }

// push gives c to a caller of Accept. It returns false if no caller takes c before limit has passed, ctx ends or the
// queue is closed.
func (q *queue) push(ctx context.Context, c net.Conn, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case q.ch <- c:
		return true
	case <-q.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}
