package duplex_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/duplex"
)

// pair returns two connected ends, and what Run of the second returns.
func pair(t *testing.T, a, b duplex.Handler) (left, right *duplex.Conn, ended chan error) {
	t.Helper()
	one, two := net.Pipe()
	t.Cleanup(func() { one.Close(); two.Close() })
	left, right, ended = duplex.NewConn(one, one), duplex.NewConn(two, two), make(chan error, 1)
	go func() { _ = left.Run(a) }()
	go func() { ended <- right.Run(b) }()
	return left, right, ended
}

// A lane whose reader does not read stops its sender after Window bytes, and no other lane.
func TestSlowLaneDelaysNoOther(t *testing.T) {
	left, right, _ := pair(t, duplex.Handler{}, duplex.Handler{})
	slowIn, slowOut := left.Lane(1), right.Lane(1)
	in, out := left.Lane(2), right.Lane(2)
	sent := make(chan int, 1)
	go func() {
		n, _ := slowIn.Write(make([]byte, 3*duplex.Window))
		sent <- n
	}()
	const size = 8 << 20
	sum, got := sha256.New(), sha256.New()
	go func() {
		_, _ = io.Copy(in, io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), sum))
		_ = in.CloseWrite()
	}()
	if n, err := io.Copy(got, out); n != size || err != nil || !bytes.Equal(sum.Sum(nil), got.Sum(nil)) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	select {
	case n := <-sent:
		t.Fatalf("the writer of a lane that nobody reads wrote %d bytes", n)
	case <-time.After(20 * time.Millisecond):
	}
	if _, err := io.ReadFull(slowOut, make([]byte, 3*duplex.Window)); err != nil || <-sent != 3*duplex.Window {
		t.Errorf("the slow lane: %v", err)
	}
}

// A peer that sends more than the window, or gives back more than it got, ends the stream. So does a broken frame.
func TestPeerBeyondItsWindow(t *testing.T) {
	data := func(n int) []byte {
		return duplex.Frame{Kind: duplex.KindData, Lane: 1, Body: make([]byte, n)}.Append(nil)
	}
	back := binary.BigEndian.AppendUint32(nil, 1)
	for name, sent := range map[string][]byte{
		"data":     append(data(duplex.Window), data(1)...),
		"window":   duplex.Frame{Kind: duplex.KindWindow, Lane: 1, Body: back}.Append(nil),
		"kind":     {99, 0, 0, 0, 0, 0, 0, 0, 0},
		"size":     {1, 0, 0, 0, 1, 255, 255, 255, 255},
		"open":     duplex.Frame{Kind: duplex.KindOpen, Lane: 1}.Append(nil),
		"no lane":  duplex.Frame{Kind: duplex.KindOpen}.Append(nil),
		"no words": duplex.Frame{Kind: duplex.KindMessage}.Append(nil),
	} {
		c := duplex.NewConn(bytes.NewReader(sent), io.Discard)
		lane := c.Lane(1)
		if err := c.Run(duplex.Handler{Open: func(*duplex.Lane) error { return nil }}); !errors.Is(err, duplex.ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := lane.Write([]byte("x")); err == nil {
			t.Errorf("%s: the lane goes on", name)
		}
	}
}

// What was sent before the end of a lane arrives, also if the stream ends right after it. A lane without an end breaks.
func TestEndOfStream(t *testing.T) {
	var stream []byte
	for _, f := range []duplex.Frame{{duplex.KindData, 1, []byte("whole")}, {Kind: duplex.KindEnd, Lane: 1},
		{duplex.KindData, 2, []byte("cut")}, {duplex.KindReset, 3, []byte("refused")}} {
		stream = f.Append(stream)
	}
	c := duplex.NewConn(bytes.NewReader(stream), io.Discard)
	whole, cut, reset := c.Lane(1), c.Lane(2), c.Lane(3)
	if err := c.Run(duplex.Handler{}); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(whole); string(got) != "whole" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := io.ReadAll(cut); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a lane that was cut off: %v", err)
	}
	if _, err := reset.Read(make([]byte, 1)); !errors.Is(err, duplex.ErrReset) || !bytes.Contains([]byte(err.Error()),
		[]byte("refused")) {
		t.Errorf("a lane that was reset: %v", err)
	}
}

// After Close nothing is written, and no write is under way.
func TestNothingAfterClose(t *testing.T) {
	out := new(slowWriter)
	c := duplex.NewConn(bytes.NewReader(nil), out)
	lane, began := c.Lane(1), make(chan struct{})
	out.began = func() { close(began) }
	sent := make(chan error, 1)
	go func() {
		_, err := lane.Write([]byte("first"))
		sent <- err
	}()
	<-began
	c.Close(io.ErrClosedPipe)
	if !out.done.Load() {
		t.Error("a write was under way when Close returned")
	}
	out.done.Store(false)
	if err := <-sent; err != nil {
		t.Errorf("the write that Close met: %v", err)
	}
	if err := c.Send(duplex.Frame{Kind: duplex.KindEnd, Lane: 1}); !errors.Is(err, io.ErrClosedPipe) || out.done.Load() {
		t.Errorf("a frame was sent after Close: %v", err)
	}
}

type slowWriter struct {
	began func()
	done  atomic.Bool
}

func (w *slowWriter) Write(p []byte) (int, error) {
	w.began()
	time.Sleep(50 * time.Millisecond)
	w.done.Store(true)
	return len(p), nil
}

// Lanes that the peer opens arrive in Open, and are independent of each other.
func TestOpenLanes(t *testing.T) {
	opened := make(chan *duplex.Lane, 2)
	left, _, _ := pair(t, duplex.Handler{}, duplex.Handler{Open: func(l *duplex.Lane) error {
		opened <- l
		return nil
	}})
	for n := range uint32(2) {
		l, err := left.OpenLane(n + 1)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = l.Write([]byte{byte(n)})
			_ = l.CloseWrite()
		}()
	}
	for range 2 {
		l := <-opened
		if got, err := io.ReadAll(l); len(got) != 1 || err != nil {
			t.Errorf("%v, %v", got, err)
		}
		_ = l.CloseWrite()
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(duplex.Frame{Kind: duplex.KindData, Lane: 3, Body: []byte("text")}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := duplex.ReadFrame(bytes.NewReader(b))
		if err == nil && !bytes.HasPrefix(b, frame.Append(nil)) {
			t.Errorf("%v is not encoded as it was", frame)
		}
	})
}
