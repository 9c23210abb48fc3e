package httpapi

import (
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A reader of the page's stream that takes nothing is ended after 20 s. One that takes each frame within that time goes
// on.
func TestPageReaderThatTakesNothingIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		frames := make(chan error)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			send := sendTo(w)
			for {
				err := send(make([]byte, 32<<10))
				frames <- err
				if err != nil {
					return
				}
			}
		})}
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Serve(&oneConn{conn: here, closed: make(chan struct{})}) }()
		defer func() { there.Close(); server.Close(); <-done }()
		if _, err := io.WriteString(there, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		stop, reading := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(reading)
			for buf := make([]byte, 2300); ; { // a frame takes it about 15 s
				select {
				case <-time.After(time.Second):
					_, _ = there.Read(buf)
				case <-stop:
					return
				}
			}
		}()
		began := time.Now()
		for range 3 {
			if err := <-frames; err != nil {
				t.Fatalf("a reader that takes its time is ended after %s: %v", time.Since(began), err)
			}
		}
		close(stop)
		began = time.Now()
		err := <-frames
		if took := time.Since(began); err == nil || took != writeBound {
			t.Errorf("a reader that takes nothing: %v after %s", err, took)
		}
		there.Close()
		<-reading
	})
}

// oneConn is a listener that accepts one connection.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l *oneConn) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

// Addr implements net.Listener.
func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }
