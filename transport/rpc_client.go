package transport

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/pki"
)

// agentIdle is how long a connection to a server stays open without a call.
const agentIdle = 90 * time.Second

// agentLine makes an agent's calls to one server. It dials when it has no connection, and for the first call after a
// reload of the credentials, so that the server sees the certificate in use. Safe for concurrent use.
type agentLine struct {
	address string
	creds   *Credentials
	dial    func(ctx context.Context, address string) (net.Conn, error)
	dialing chan struct{} // capacity 1; full while a goroutine dials
	now     atomic.Pointer[callConn]
}

func newAgentLine(d Dialer, address string) *agentLine {
	return &agentLine{address: address, creds: d.Credentials, dialing: make(chan struct{}, 1), dial: d.DialAgent}
}

// ask makes one call. It blocks until there is an answer, the connection fails, or ctx ends. The error is an
// *api.Problem if the server refused the call, and otherwise that of the connection or of ctx.
func (l *agentLine) ask(ctx context.Context, call AgentCall, question []byte) ([]byte, error) {
	for {
		conn, err := l.connect(ctx)
		if err != nil {
			return nil, err
		}
		answer, err := conn.ask(ctx, call, question)
		if !errors.Is(err, errLineClosed) { // that is, after a reload another call closed it before this one began
			return answer, err
		}
	}
}

// connect returns the existing connection, or dials one.
func (l *agentLine) connect(ctx context.Context) (*callConn, error) {
	if c := l.usable(); c != nil {
		return c, nil
	}
	select {
	case l.dialing <- struct{}{}:
		defer func() { <-l.dialing }()
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.Cause(ctx)} // a dial error, because nothing was sent
	}
	if c := l.usable(); c != nil {
		return c, nil
	}
	shows := l.creds.cur.Load() // a reload during the dial leads to one more dial, but never to an old certificate
	raw, err := l.dial(ctx, l.address)
	if err != nil {
		return nil, err
	}
	c := newCallConn(raw)
	c.shows = shows
	l.now.Store(c)
	return c, nil
}

// usable returns the connection for new calls, or nil. It closes a connection on which the server saw an earlier
// certificate than the one in use. If calls are open on that connection, the last one closes it when it returns.
func (l *agentLine) usable() *callConn {
	c := l.now.Load()
	switch {
	case c == nil || !c.takesCalls():
		return nil
	case c.shows != l.creds.cur.Load():
		c.closeWhenIdle()
		return nil
	}
	return c
}

// close closes the connection. If calls are open, the last one closes it when it returns.
func (l *agentLine) close() {
	if c := l.now.Load(); c != nil {
		c.closeWhenIdle()
	}
}

// callConn is the agent's end of a connection to a server. One goroutine reads from it until the connection ends.
type callConn struct {
	frameConn
	shows   *pki.Certificate // the certificate in use before the dial
	readers sync.WaitGroup
	heard   atomic.Int64 // when bytes last arrived, in ns since began
	sent    atomic.Int64 // when bytes were last sent, in ns since began
	began   time.Time
	asked   int64 // 1 + the value of heard when look last sent a ping; 0 means that no ping was sent

	mu      sync.Mutex
	last    uint32
	open    map[uint32]chan frame
	used    time.Time // when the last call returned
	closing bool
	ended   error       // why the connection ended; nil while it is open
	sign    *time.Timer // the timer that calls look
}

func newCallConn(raw net.Conn) *callConn {
	c := &callConn{began: time.Now(), used: time.Now(), open: map[uint32]chan frame{}}
	c.frameConn = newFrameConn(&notedConn{raw, c}, reach.MaxAnswer)
	c.mu.Lock()
	c.sign = time.AfterFunc(reach.AskAfter, c.look)
	c.mu.Unlock()
	c.readers.Go(c.receive)
	return c
}

// notedConn records when bytes arrived and when bytes were sent, even if they are only a part of a large frame.
type notedConn struct {
	net.Conn
	of *callConn
}

func (n *notedConn) Read(b []byte) (int, error) {
	read, err := n.Conn.Read(b)
	if read > 0 {
		n.of.heard.Store(int64(time.Since(n.of.began)))
	}
	return read, err
}

func (n *notedConn) Write(b []byte) (int, error) {
	written, err := n.Conn.Write(b)
	n.of.sent.Store(int64(time.Since(n.of.began)))
	return written, err
}

// takesCalls reports whether new calls may use the connection. Overlapping calls would keep a closing one open for
// ever.
func (c *callConn) takesCalls() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended == nil && !c.closing
}

func (c *callConn) ask(ctx context.Context, call AgentCall, question []byte) ([]byte, error) {
	got := make(chan frame, 1)
	c.mu.Lock()
	if c.ended != nil {
		c.mu.Unlock()
		return nil, c.ended
	}
	c.last++
	number := c.last
	c.open[number] = got
	c.mu.Unlock()
	defer c.forget(number)
	if err := c.write(frame{number, frameKind(call), question}); err != nil {
		c.lost(err)
	}
	select {
	case f, ok := <-got:
		switch {
		case !ok:
			return nil, c.reason()
		case f.kind == frameProblem:
			return nil, problemIn(f.body)
		}
		return f.body, nil
	case <-ctx.Done():
		c.tryWrite(frame{call: number, kind: frameCancel}, reach.AnswerWithin)
		return nil, context.Cause(ctx)
	}
}

func problemIn(body []byte) error {
	var p api.Problem
	if err := DecodeCBOR(body, &p); err != nil {
		return err
	}
	return &p
}

func (c *callConn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

func (c *callConn) forget(number uint32) {
	c.mu.Lock()
	delete(c.open, number)
	c.used = time.Now()
	idle := c.closing && len(c.open) == 0
	c.mu.Unlock()
	if idle {
		c.end(errLineClosed)
	}
}

var (
	errLineClosed = errors.New("the connection was closed")
	errLineIdle   = errors.New("the connection was idle")
	errLineSilent = errors.New("the server gives no sign of life")
)

func (c *callConn) closeWhenIdle() {
	c.mu.Lock()
	c.closing = true
	idle := len(c.open) == 0
	c.mu.Unlock()
	if idle {
		c.end(errLineClosed)
	}
}

// end closes the connection, and makes waiting calls fail with why. Only the first call of end sets the reason.
func (c *callConn) end(why error) {
	c.mu.Lock()
	if c.ended == nil {
		c.ended = why
		for _, got := range c.open {
			close(got)
		}
	}
	c.sign.Stop()
	c.mu.Unlock()
	_ = c.Close()
}

// lost ends a connection after a failed write. The server may have sent the answer, or have closed the connection,
// before the failure. So lost gives receive one second to read what has arrived.
func (c *callConn) lost(err error) {
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	c.readers.Wait()
	c.end(err)
}

// receive hands out answers until the connection ends.
func (c *callConn) receive() {
	for {
		f, err := c.read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return // lost set the deadline, and ends the connection with a better reason
		}
		if err != nil {
			c.end(err)
			return
		}
		if f.kind != frameAnswer && f.kind != frameProblem {
			continue
		}
		c.mu.Lock()
		got := c.open[f.call]
		if c.ended == nil && got != nil {
			delete(c.open, f.call)
			got <- f // never blocks: the channel has room for the only answer
		}
		c.mu.Unlock()
	}
}

// look pings a server that has sent nothing for reach.AskAfter, and ends the connection if nothing arrives within
// reach.AnswerWithin. It also sends pings while a large answer arrives, so that the server doesn't end the connection.
// It ends a connection that was idle for agentIdle.
func (c *callConn) look() {
	heard := c.heard.Load() + 1
	silent := time.Since(c.began) - time.Duration(heard)
	c.mu.Lock()
	idle := len(c.open) == 0 && time.Since(c.used) > agentIdle
	c.mu.Unlock()
	switch {
	case idle:
		c.end(errLineIdle)
	case silent < reach.AskAfter:
		if time.Since(c.began)-time.Duration(c.sent.Load()) > agentSilence/2 {
			c.tryWrite(frame{kind: framePing}, reach.AnswerWithin)
		}
		c.lookIn(reach.AskAfter - silent)
	case c.asked == heard:
		c.end(errLineSilent)
	default:
		c.asked = heard
		c.tryWrite(frame{kind: framePing}, reach.AnswerWithin)
		c.lookIn(reach.AnswerWithin)
	}
}

func (c *callConn) lookIn(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.sign.Reset(d)
	}
}
