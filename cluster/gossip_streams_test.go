package cluster

import (
	"bytes"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proves that unauthenticated senders that fill streams cost a bounded amount of memory, and that a real stream still
// arrives.
func TestStreamsOfStrangers(t *testing.T) {
	s := openTestSocket(t, "127.0.0.1", 0)
	to := net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port()))
	var buffered, peak atomic.Int64
	largest := make(chan int, 1)
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { _ = s.Shutdown() })
	serving.Go(func() { // reads whole streams, as memberlist does
		for {
			select {
			case conn := <-s.StreamCh():
				serving.Go(func() {
					held := 0
					defer func() {
						buffered.Add(int64(-held)) // must precede Close, which admits another stream
						_ = conn.Close()
					}()
					_ = conn.SetDeadline(time.Now().Add(time.Minute))
					whole, err := io.ReadAll(io.TeeReader(conn, counter{&buffered, &peak}))
					held = len(whole)
					if err == nil && bytes.HasPrefix(whole, []byte("state")) {
						largest <- len(whole)
					}
				})
			case <-s.closed:
				return
			}
		}
	})

	var strangers []net.Conn
	var writing sync.WaitGroup
	for i := range 60 {
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%2))}
		conn, err := (&net.Dialer{LocalAddr: from, Timeout: 10 * time.Second}).Dial("tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		strangers = append(strangers, conn)
		writing.Go(func() { _, _ = conn.Write(make([]byte, 20<<20)) })
	}
	least, most := int64(len(strangers)*smallStream), int64(len(strangers)*smallStream+maxLargeStreams*maxStreamBytes)
	for deadline := time.Now().Add(30 * time.Second); buffered.Load() < least; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes were read, at least %d are allowed", buffered.Load(), least)
		}
	}
	for _, conn := range strangers {
		_ = conn.Close()
	}
	writing.Wait()
	if got := peak.Load(); got > most {
		t.Errorf("strangers had %d bytes buffered, at most %d are allowed", got, most)
	}

	honest, err := net.DialTimeout("tcp", to, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	state := bytes.Repeat([]byte("state"), 400_000)
	if _, err := honest.Write(state); err != nil {
		t.Fatal(err)
	}
	_ = honest.Close()
	select {
	case got := <-largest:
		if got != len(state) {
			t.Errorf("%d bytes of %d arrived", got, len(state))
		}
	case <-time.After(30 * time.Second):
		t.Error("a stream of 2 MB did not arrive")
	}
}

type counter struct{ n, peak *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	now := c.n.Add(int64(len(b)))
	old := c.peak.Load()
	for now > old && !c.peak.CompareAndSwap(old, now) {
		old = c.peak.Load()
	}
	return len(b), nil
}

// proves that one address can use neither all streams nor all large streams.
func TestStreamsOfOneSource(t *testing.T) {
	l := newStreamLimits()
	open := func(source byte) (*boundedStream, bool) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
		conn, ok := l.admit(from{ours, &net.TCPAddr{IP: net.IPv4(127, 0, 0, source), Port: 7}})
		if !ok {
			return nil, false
		}
		return conn.(*boundedStream), true
	}
	var all []*boundedStream
	for {
		s, ok := open(1)
		if !ok {
			break
		}
		all = append(all, s)
	}
	if len(all) != maxStreamsOfSource {
		t.Errorf("one address opened %d streams, want %d", len(all), maxStreamsOfSource)
	}
	large := 0
	for _, s := range all {
		if taken, _ := s.tryLarge(); taken {
			large++
		}
	}
	if large != maxLargeOfSource {
		t.Errorf("one address has %d large streams, want %d", large, maxLargeOfSource)
	}
	other, ok := open(2)
	if !ok {
		t.Fatal("another address was refused")
	}
	if taken, _ := other.tryLarge(); !taken {
		t.Error("another address has no large stream")
	}
	for _, s := range append(all, other) {
		_, _ = s.Close(), s.Close() // memberlist closes twice
	}
	if l.all != (streamCount{}) || len(l.sources) != 0 {
		t.Errorf("all streams are closed, and %+v of %d addresses are counted", l.all, len(l.sources))
	}
}

// from is a connection with a given remote address.
type from struct {
	net.Conn
	remote net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.remote }
