package agent

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/door"
	"github.com/outspan/outspan/model"
)

// After its backend has finished, a client that does not read the remaining data is disconnected after the time
// Limits.Stalled.
func TestForwardStalledClient(t *testing.T) {
	d := newGate(t)
	d.limit = func(l *door.Limits) { l.Stalled = 200 * time.Millisecond }
	d.start(d.poll)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	d.serve(model.Backend{Instance: "sender", Node: "here", Address: l.Addr().String()})
	conn, err := net.Dial("tcp", d.address())
	must(t, err)
	defer conn.Close()
	must(t, conn.(*net.TCPConn).SetReadBuffer(16<<10))
	back, err := l.Accept()
	must(t, err)
	go func() { // fills the buffers between backend and client, then closes the backend's end
		_ = back.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		_, _ = back.Write(make([]byte, 64<<10))
		_ = back.Close()
	}()
	eventually(t, "the connection", func() bool { return d.count() == 1 })
	eventually(t, "its place to be free", func() bool { return d.count() == 0 })
	if _, err := io.Copy(io.Discard, conn); err == nil {
		t.Error("what was cut looks like the whole")
	}
}

// When all places for connections are taken, a connection that was idle for the time Limits.Idle is closed to make
// room. A connection in use stays open.
func TestForwardIdleConnections(t *testing.T) {
	d, c := newGate(t), caller(t, false)
	d.limit = func(l *door.Limits) { l.Places, l.Idle = 4, 500*time.Millisecond }
	d.start(d.poll)
	good := newHouse(t, "good", "there", nil)
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer echo.Close()
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); conn.Close() }()
		}
	}()
	d.serve(model.Backend{Instance: "echo", Node: "here", Address: echo.Addr().String()})
	var lines []net.Conn
	for range 4 {
		conn, err := net.Dial("tcp", d.address())
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		lines = append(lines, conn)
	}
	say := func(conn net.Conn) error {
		_, err := conn.Write([]byte("x"))
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		return err
	}
	for _, conn := range lines {
		must(t, say(conn))
	}
	stop, used := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				used <- nil
				return
			case <-time.After(50 * time.Millisecond):
				if err := say(lines[0]); err != nil {
					used <- err
					return
				}
			}
		}
	}()
	d.serve(good.Backend)
	if got, err := get(c, d.address()); got != "good" {
		t.Errorf("with four idle connections in four places: %q, %v", got, err)
	}
	close(stop)
	if err := <-used; err != nil {
		t.Errorf("the connection that was in use: %v", err)
	}
}

// One client address can have at most Limits.PerSource connections.
func TestForwardPerSource(t *testing.T) {
	d, c := newGate(t), caller(t, false)
	d.limit = func(l *door.Limits) { l.PerSource = 3 }
	d.start(d.poll)
	good := newHouse(t, "good", "there", nil)
	d.serve(good.Backend)
	for range 3 {
		conn, err := net.Dial("tcp", d.address())
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
	eventually(t, "three connections", func() bool { return d.count() == 3 })
	if got, err := get(c, d.address()); err == nil {
		t.Errorf("a fourth connection was answered with %q", got)
	}
	other := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	c.Transport.(*http.Transport).DialContext = other.DialContext
	if got, err := get(c, d.address()); got != "good" {
		t.Errorf("from another address: %q, %v", got, err)
	}
}
