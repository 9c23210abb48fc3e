package duplex

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Conn is one end of a stream. Its methods are safe for concurrent use. Run must be running for anything to arrive.
type Conn struct {
	in io.Reader

	write sync.Mutex // held while a frame is written
	out   io.Writer
	buf   []byte

	mu    sync.Mutex
	lanes map[uint32]*Lane
	err   error // why the stream ended
}

// NewConn returns the end that reads frames from in and writes them to out. Each call of out.Write gets whole frames,
// and must send them at once.
func NewConn(in io.Reader, out io.Writer) *Conn {
	return &Conn{in: in, out: out, lanes: map[uint32]*Lane{}}
}

// Handler gets what arrives on a Conn. Its functions run in the goroutine of Run and must not block. An error ends the
// stream. A nil function stands for one that returns ErrFrame.
type Handler struct {
	Message func(body []byte) error
	Open    func(lane *Lane) error // the peer has begun a lane
}

// Run reads frames until the stream ends, and breaks off all lanes then. It returns nil if the peer ended the stream
// between two frames.
func (c *Conn) Run(h Handler) error {
	var err error
	for err == nil {
		var f Frame
		if f, err = ReadFrame(c.in); err == nil {
			err = c.take(f, h)
		}
	}
	if errors.Is(err, io.EOF) {
		c.Fail(io.ErrUnexpectedEOF)
		return nil
	}
	c.Fail(err)
	return err
}

// Fail breaks off all lanes. Their calls return err. No further frame is sent, but a write of out may be under way.
func (c *Conn) Fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	all := c.lanes
	c.lanes = map[uint32]*Lane{}
	c.mu.Unlock()
	for _, l := range all {
		l.fail(err)
	}
}

// ended returns why the stream has ended, or nil.
func (c *Conn) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *Conn) take(f Frame, h Handler) error {
	switch f.Kind {
	case KindMessage:
		if h.Message == nil {
			return ErrFrame
		}
		return h.Message(f.Body)
	case KindOpen:
		if h.Open == nil {
			return ErrFrame
		}
		l, err := c.add(f.Lane)
		if err != nil {
			return err
		}
		return h.Open(l)
	case KindData, KindEnd, KindWindow, KindReset:
	}
	c.mu.Lock()
	l := c.lanes[f.Lane]
	c.mu.Unlock()
	if l == nil {
		return nil // it was broken off here, and the peer does not know yet
	}
	return l.take(f)
}

// Lane begins a lane that both ends know without an open frame. It returns a broken lane if the stream has ended, or
// the lane exists.
func (c *Conn) Lane(number uint32) *Lane {
	l, err := c.add(number)
	if err != nil {
		l = newLane(c, number)
		l.fail(err)
	}
	return l
}

// OpenLane begins a lane and tells the peer.
func (c *Conn) OpenLane(number uint32) (*Lane, error) {
	l, err := c.add(number)
	if err == nil {
		err = c.Send(Frame{Kind: KindOpen, Lane: number})
	}
	return l, err
}

func (c *Conn) add(number uint32) (*Lane, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	if number == 0 || c.lanes[number] != nil {
		return nil, fmt.Errorf("%w: lane %d can't be opened", ErrFrame, number)
	}
	l := newLane(c, number)
	c.lanes[number] = l
	return l, nil
}

func (c *Conn) remove(l *Lane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lanes[l.number] == l {
		delete(c.lanes, l.number)
	}
}

// Close is Fail, and waits for a write of out that is under way. Out is not used any more after it has returned.
func (c *Conn) Close(err error) {
	c.Fail(err)
	c.write.Lock()
	defer c.write.Unlock()
	c.buf = nil
}

// Send sends a frame. It blocks until the frame is written. After an error the stream has ended.
func (c *Conn) Send(f Frame) error {
	c.write.Lock()
	defer c.write.Unlock()
	if err := c.ended(); err != nil {
		return err
	}
	c.buf = f.Append(c.buf[:0])
	if _, err := c.out.Write(c.buf); err != nil {
		c.Fail(err)
		return err
	}
	return nil
}

// SendMessage sends v as JSON.
func (c *Conn) SendMessage(v any) error {
	f, err := Message(v)
	if err != nil {
		return err
	}
	return c.Send(f)
}

// Lane is a stream of bytes in both directions. Read and Write may be called at the same time, but neither by two
// goroutines.
type Lane struct {
	conn   *Conn
	number uint32

	mu      sync.Mutex
	changed *sync.Cond
	got     bytes.Buffer // what has come and is not read yet
	ended   bool         // no more comes
	closed  bool         // CloseWrite was called
	owed    int          // bytes that were read and not given back yet
	credit  int          // bytes that may be sent
	err     error        // why the lane was broken off
}

func newLane(c *Conn, number uint32) *Lane {
	l := &Lane{conn: c, number: number, credit: Window}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// take handles a frame of the lane. It does not block.
func (l *Lane) take(f Frame) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.changed.Broadcast()
	switch f.Kind {
	case KindData:
		if l.ended || l.got.Len()+l.owed+len(f.Body) > Window {
			return fmt.Errorf("%w: lane %d sent more than it may", ErrFrame, l.number)
		}
		l.got.Write(f.Body)
	case KindEnd:
		l.ended = true
		l.dropLocked()
	case KindWindow:
		if len(f.Body) != 4 {
			return ErrFrame
		}
		n := binary.BigEndian.Uint32(f.Body)
		if n > Window || l.credit+int(n) > Window {
			return fmt.Errorf("%w: lane %d gave back more than it got", ErrFrame, l.number)
		}
		l.credit += int(n)
	case KindReset:
		l.failLocked(&ResetError{Why: string(f.Body)})
		l.conn.remove(l)
	case KindMessage, KindOpen:
	}
	return nil
}

// ErrReset is wrapped by the errors of a lane that the peer broke off.
var ErrReset = errors.New("the other end broke off")

// ResetError is the error of a lane that the peer broke off. It wraps ErrReset.
type ResetError struct {
	Why string // what the peer gave to Reset; "" means that the connection behind the lane ended by an error
}

// Error implements error.
func (e *ResetError) Error() string {
	if e.Why == "" {
		return ErrReset.Error()
	}
	return ErrReset.Error() + ": " + e.Why
}

// Unwrap returns ErrReset.
func (e *ResetError) Unwrap() error { return ErrReset }

func (l *Lane) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failLocked(err)
}

func (l *Lane) failLocked(err error) {
	if l.err == nil {
		l.err = err
	}
	l.changed.Broadcast()
}

// dropLocked forgets a lane that has ended in both directions.
func (l *Lane) dropLocked() {
	if l.ended && l.closed {
		l.conn.remove(l)
	}
}

// Read implements io.Reader. It blocks until bytes have come, or the lane or the stream has ended. What came before the
// lane was broken off is lost, unless the peer had ended the lane.
func (l *Lane) Read(p []byte) (int, error) {
	l.mu.Lock()
	for l.got.Len() == 0 && !l.ended && l.err == nil {
		l.changed.Wait()
	}
	if !l.ended && l.err != nil || l.got.Len() == 0 {
		defer l.mu.Unlock()
		if !l.ended {
			return 0, l.err
		}
		return 0, io.EOF
	}
	n, _ := l.got.Read(p)
	l.owed += n
	back := 0
	if l.owed >= Window/4 && !l.ended {
		back, l.owed = l.owed, 0
	}
	l.mu.Unlock()
	if back > 0 { // an error ends the stream, which the next Read reports
		_ = l.conn.Send(Frame{KindWindow, l.number, binary.BigEndian.AppendUint32(nil, uint32(back))})
	}
	return n, nil
}

// Write implements io.Writer. It blocks while Window bytes are under way.
func (l *Lane) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		l.mu.Lock()
		for l.credit == 0 && l.err == nil && !l.closed {
			l.changed.Wait()
		}
		n := min(len(p), l.credit, dataSize)
		err := l.err
		if l.closed && err == nil {
			err = io.ErrClosedPipe
		}
		if err == nil {
			l.credit -= n
		}
		l.mu.Unlock()
		if err == nil {
			err = l.conn.Send(Frame{KindData, l.number, p[:n]})
		}
		if err != nil {
			return written, err
		}
		written, p = written+n, p[n:]
	}
	return written, nil
}

// CloseWrite tells the peer that no more comes.
func (l *Lane) CloseWrite() error {
	l.mu.Lock()
	done := l.closed || l.err != nil
	l.closed = true
	l.dropLocked()
	l.changed.Broadcast()
	l.mu.Unlock()
	if done {
		return nil
	}
	return l.conn.Send(Frame{Kind: KindEnd, Lane: l.number})
}

// Reset breaks the lane off in both directions, unless both have ended.
func (l *Lane) Reset(why string) {
	l.mu.Lock()
	over := l.err != nil || l.ended && l.closed
	l.failLocked(io.ErrClosedPipe)
	l.mu.Unlock()
	l.conn.remove(l)
	if !over {
		_ = l.conn.Send(Frame{Kind: KindReset, Lane: l.number, Body: []byte(why)}) // an error ends the stream anyway
	}
}
