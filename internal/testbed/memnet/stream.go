package memnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// maxUnread is the number of unread bytes of a stream at which writes block. It is about the size of the socket buffers
// of two hosts.
const maxUnread = 1 << 20

// stream is one direction of a connection.
type stream struct {
	mu      sync.Mutex
	chunks  []chunk
	size    int           // number of unread bytes
	ended   bool          // the writing end is closed
	broken  bool          // the connection was reset
	held    bool          // while it is true, nothing arrives
	last    time.Time     // arrival time of the last chunk
	changed chan struct{} // closed and replaced at every change of the stream
}

// chunk is the data of one Write.
type chunk struct {
	data []byte
	at   time.Time // arrival time
}

func newStream() *stream { return &stream{changed: make(chan struct{})} }

// edit changes the stream and wakes all goroutines that wait for a change.
func (s *stream) edit(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stream) setHeld(held bool) { s.edit(func() { s.held = held }) }

// again says when a caller should try again: when wait is closed, or at the time until, if until is set and earlier. If
// wait is nil, the caller need not try again.
type again struct {
	wait  <-chan struct{}
	until time.Time
}

// take reads data that has arrived, or returns when to try again.
func (s *stream) take(b []byte) (n int, next again, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.broken:
		return 0, next, syscall.ECONNRESET
	case s.held:
	case len(s.chunks) > 0:
		if first := s.chunks[0]; time.Now().Before(first.at) {
			return 0, again{s.changed, first.at}, nil
		}
		for len(b) > 0 && len(s.chunks) > 0 && !time.Now().Before(s.chunks[0].at) {
			got := copy(b, s.chunks[0].data)
			n, b = n+got, b[got:]
			if s.chunks[0].data = s.chunks[0].data[got:]; len(s.chunks[0].data) == 0 {
				s.chunks = s.chunks[1:]
			}
		}
		s.size -= n
		close(s.changed)
		s.changed = make(chan struct{})
		return n, next, nil
	case s.ended:
		return 0, next, io.EOF
	}
	return 0, again{wait: s.changed}, nil
}

// put writes all of b, or returns when to try again. The data arrives after all earlier data. The parameter travel is
// the data's travel time, and sending is how long the link takes to send the data.
func (s *stream) put(b []byte, travel, sending time.Duration) (next again, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return next, net.ErrClosed
	case s.broken:
		return next, syscall.EPIPE
	case s.size >= maxUnread:
		return again{wait: s.changed}, nil
	}
	at := time.Now().Add(travel)
	if at.Before(s.last) {
		at = s.last
	}
	s.last = at.Add(sending)
	s.chunks = append(s.chunks, chunk{append([]byte(nil), b...), s.last})
	s.size += len(b)
	close(s.changed)
	s.changed = make(chan struct{})
	return next, nil
}

// conn is one end of a connection.
type conn struct {
	net           *Net
	from, to      string // hosts of this end and of the other end
	local, remote Addr
	in, out       *stream
	other         *conn
	closed        chan struct{}
	once          sync.Once
	read, write   deadline
}

func (n *Net) connect(from, to string) (near, far *conn) {
	there, back := newStream(), newStream()
	near = &conn{net: n, from: from, to: Host(to), local: localAddr(from), remote: Addr(to), in: back, out: there,
		closed: make(chan struct{})}
	far = &conn{net: n, from: Host(to), to: from, local: Addr(to), remote: localAddr(from), in: there, out: back,
		closed: make(chan struct{})}
	near.other, far.other = far, near
	near.read.init()
	near.write.init()
	far.read.init()
	far.write.init()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[near], n.conns[far] = struct{}{}, struct{}{}
	n.hold() // a link may have failed since the dial began
	return near, far
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	for {
		select {
		case <-c.closed:
			return 0, net.ErrClosed
		default:
		}
		late, moved := c.read.wait()
		if isClosed(late) {
			return 0, os.ErrDeadlineExceeded
		}
		n, next, err := c.in.take(b)
		if n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
		c.pause(next, late, moved)
	}
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.net.mu.Lock()
	travel, sending := c.net.travel(c.from, c.to), c.net.sending(c.from, c.to, len(b))
	c.net.mu.Unlock()
	for {
		select {
		case <-c.closed:
			return 0, net.ErrClosed
		default:
		}
		late, moved := c.write.wait()
		if isClosed(late) {
			return 0, os.ErrDeadlineExceeded
		}
		next, err := c.out.put(b, travel, sending)
		switch {
		case err != nil:
			return 0, err
		case next.wait == nil:
			return len(b), nil
		}
		c.pause(next, late, moved)
	}
}

// pause blocks until the time for the next try, the deadline has passed or was changed, or this end is closed.
func (c *conn) pause(next again, late, moved <-chan struct{}) {
	var due <-chan time.Time
	if !next.until.IsZero() {
		timer := time.NewTimer(time.Until(next.until))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-next.wait:
	case <-late:
	case <-moved:
	case <-c.closed:
	case <-due:
	}
}

// Close implements net.Conn. The other end can still read the data that was written before.
func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.out.edit(func() { c.out.ended = true })
		c.leave()
	})
	return nil
}

// leave removes the connection from the network once both ends are closed.
func (c *conn) leave() {
	if isClosed(c.other.closed) {
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		delete(c.net.conns, c)
		delete(c.net.conns, c.other)
	}
}

// reset breaks the connection for both ends.
func (c *conn) reset() {
	c.in.edit(func() { c.in.broken = true })
	c.out.edit(func() { c.out.broken = true })
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	delete(c.net.conns, c)
	delete(c.net.conns, c.other)
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.read.set(t)
	c.write.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.read.set(t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.write.set(t)
	return nil
}

// deadline is a time that can be changed while goroutines wait for it.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	late  chan struct{} // closed once the deadline has passed
	moved chan struct{} // closed and replaced when the deadline changes
}

func (d *deadline) init() { d.late, d.moved = make(chan struct{}), make(chan struct{}) }

func (d *deadline) wait() (late, moved <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.late, d.moved
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	close(d.moved)
	d.moved, d.late = make(chan struct{}), make(chan struct{})
	switch late, in := d.late, time.Until(t); {
	case t.IsZero():
	case in <= 0:
		close(late)
	default:
		d.timer = time.AfterFunc(in, func() { close(late) })
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
