package transport_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// poller is a handler that answers after a minute, or at once when the server stops. A request for /rude is not
// answered when the server stops.
type poller struct{ entered chan struct{} }

func newPoller() *poller { return &poller{entered: make(chan struct{}, 16)} }

func (p *poller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	stopping := transport.Stopping(r.Context())
	if r.URL.Path == "/rude" {
		stopping = nil
	}
	p.entered <- struct{}{}
	select {
	case <-stopping:
		fmt.Fprint(w, r.Proto, " stopping")
	case <-r.Context().Done():
		panic(http.ErrAbortHandler) // otherwise the client may get an empty answer before the connection is closed
	case <-time.After(60 * time.Second):
		fmt.Fprint(w, r.Proto, " waited")
	}
}

type answer struct {
	body string
	err  error
}

func getLater(ctx context.Context, c *http.Client, url string) <-chan answer {
	ch := make(chan answer, 1)
	go func() {
		body, err := get(ctx, c, url)
		ch <- answer{body, err}
	}()
	return ch
}

// TestShutdown: when the server stops, it answers a long poll that watches Stopping. After ShutdownTimeout, it cuts off
// a long poll that ignores Stopping. Both hold for HTTP/2 and HTTP/1.1.
func TestShutdown(t *testing.T) {
	ca := authority(t, "c1")
	d := transport.Dialer{Credentials: credentials(t, ca, pki.RoleAgent, "n1")}
	for _, proto := range []string{"HTTP/2.0", "HTTP/1.1"} {
		t.Run(proto, func(t *testing.T) {
			c := client(t, d)
			if proto == "HTTP/1.1" {
				c = http1Client(t, d)
			}
			t.Run("polite", func(t *testing.T) {
				p := newPoller()
				s := start(t, credentials(t, ca, pki.RoleServer, "s1"),
					stationConfig{handler: p, http: transport.HTTPConfig{ShutdownTimeout: time.Minute}})
				got := getLater(t.Context(), c, "https://"+s.addr+"/polite")
				<-p.entered
				began := time.Now()
				if err := s.stopAPI(); err != nil {
					t.Error(err)
				}
				if a := <-got; a.err != nil || a.body != proto+" stopping" {
					t.Errorf("got %q, %v", a.body, a.err)
				}
				if took := time.Since(began); took > 30*time.Second {
					t.Errorf("it took %s", took)
				}
			})
			t.Run("rude", func(t *testing.T) {
				p := newPoller()
				s := start(t, credentials(t, ca, pki.RoleServer, "s1"),
					stationConfig{handler: p, http: transport.HTTPConfig{ShutdownTimeout: 100 * time.Millisecond}})
				got := getLater(t.Context(), c, "https://"+s.addr+"/rude")
				<-p.entered
				wantCode(t, s.stopAPI(), model.CodeShutdownTimeout)
				if a := <-got; a.err == nil {
					t.Errorf("got %q from a request that was cut off", a.body)
				}
				eventually(t, "its connection is gone", func() bool { return s.Stats().API == 0 })
			})
		})
	}
}

// http1Client is a client without HTTP/2.
func http1Client(t *testing.T, d transport.Dialer) *http.Client {
	c := client(t, d)
	tr := c.Transport.(*reach.HTTPTransport)
	tr.ForceAttemptHTTP2 = false
	tr.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := tls.Client(raw, d.Credentials.ClientConfig(pki.RoleServer))
		if err := c.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		return c, nil
	}
	return c
}

// TestDeafHandler: a handler that ignores both Stopping and its context doesn't keep the server from stopping.
func TestDeafHandler(t *testing.T) {
	ca := authority(t, "c1")
	creds := credentials(t, ca, pki.RoleServer, "s1")
	entered, release := make(chan struct{}), make(chan struct{})
	s := start(t, creds,
		stationConfig{http: transport.HTTPConfig{ShutdownTimeout: time.Millisecond},
			handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				close(entered)
				<-release
			})})
	got := getLater(t.Context(), client(t, transport.Dialer{Credentials: creds}), "https://"+s.addr)
	<-entered
	wantCode(t, s.stopAPI(), model.CodeShutdownTimeout, "1 requests did not end")
	close(release)
	<-got
}

func TestHeaderLimit(t *testing.T) {
	ca := authority(t, "c1")
	creds := credentials(t, ca, pki.RoleServer, "s1")
	s := start(t, creds, stationConfig{http: transport.HTTPConfig{MaxHeaderBytes: 4096}})
	ask := func(c *http.Client, size int) (*http.Response, error) {
		req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.addr, http.NoBody))(t)
		req.Header.Set("X-Fill", strings.Repeat("x", size))
		resp, err := c.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		return resp, err
	}
	d := transport.Dialer{Credentials: creds}
	for _, c := range []*http.Client{client(t, d), http1Client(t, d)} {
		if resp, err := ask(c, 2048); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("2 KiB of header: %v %v", resp, err)
		}
	}
	if resp, err := ask(http1Client(t, d), 32<<10); err != nil ||
		resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("32 KiB of header over HTTP/1.1: %v %v", resp, err)
	}
	// An HTTP/2 client knows the limit and does not even send such a header.
	if resp, err := ask(client(t, d), 32<<10); err == nil && resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("32 KiB of header over HTTP/2: status %d", resp.StatusCode)
	}
}

// TestStoppedEarly: Run returns an error if the listener that it gets is already closed.
func TestStoppedEarly(t *testing.T) {
	s := transport.NewHTTPServer(http.HandlerFunc(whoami), transport.HTTPConfig{})
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	l.Close()
	wantCode(t, s.Run(t.Context(), l), model.CodeListen)
}
