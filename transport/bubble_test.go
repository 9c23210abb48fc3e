package transport_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/internal/testbed/memnet"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// TestBubble runs two servers and an agent in fake time. A bubble ends only when all its goroutines have ended, so the
// test also shows that no goroutine is left.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		ca := authority(t, "c1")
		server := credentials(t, ca, pki.RoleServer, "s1")
		if got := server.NotAfter().Year(); got != 2009 && got != 2010 {
			t.Errorf("the certificate ends in %d: it was not made by the bubble's clock", got)
		}
		p := newPoller()
		s := start(t, server, stationConfig{raw: network.Listen("s1:443"), dial: network.Dialer("s1"), handler: p})
		echoRaft(t, s)
		s2 := start(t, credentials(t, ca, pki.RoleServer, "s2"),
			stationConfig{raw: network.Listen("s2:443"), dial: network.Dialer("s1")})
		echoRaft(t, s2)

		pollInTime(t, network, ca)
		c := must(s2.raft.DialRaft("s1:443", time.Second))(t)
		if err := ping(c); err != nil {
			t.Error(err)
		}
		c.Close()
		stopInTime(t, network, ca, s, p)
	})
}

// pollInTime checks that a long poll over HTTP/2 is answered after one minute.
func pollInTime(t *testing.T, network *memnet.Net, ca *transport.Authority) {
	d := transport.Dialer{Credentials: credentials(t, ca, pki.RoleAgent, "n1"), Dial: network.Dialer("n1")}
	began := time.Now()
	got, err := get(t.Context(), client(t, d), "https://s1/rude")
	if err != nil || got != "HTTP/2.0 waited" {
		t.Errorf("got %q, %v", got, err)
	}
	if took := time.Since(began); took < time.Minute || took > time.Minute+time.Second {
		t.Errorf("it took %s, want a minute", took)
	}
}

// stopInTime checks that a stopping server waits five seconds, the default, for a poll that ignores the stop, and then
// cuts the poll off.
func stopInTime(t *testing.T, network *memnet.Net, ca *transport.Authority, s *station, p *poller) {
	for len(p.entered) > 0 {
		<-p.entered
	}
	d := transport.Dialer{Credentials: credentials(t, ca, pki.RoleAgent, "n1"), Dial: network.Dialer("n1")}
	got := getLater(t.Context(), client(t, d), "https://s1/rude")
	<-p.entered
	began := time.Now()
	wantCode(t, s.stopAPI(), model.CodeShutdownTimeout, "5s")
	if took := time.Since(began); took < 5*time.Second || took > 7*time.Second {
		t.Errorf("stopping took %s, want 5 s and a little", took)
	}
	if a := <-got; a.err == nil {
		t.Errorf("the poll that was cut off answered %q", a.body)
	}
}

// A peer may fall silent without closing its connections, such as a machine that lost power or a server that hangs. The
// other end notices the silence within five seconds, even during a long poll that expects no answer for a minute.
// Otherwise the agent would get no assignments for that minute.
func TestSilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		ca := authority(t, "c1")
		start(t, credentials(t, ca, pki.RoleServer, "s1"),
			stationConfig{raw: network.Listen("s1:443"), handler: newPoller()})
		var silent atomic.Bool
		d := transport.Dialer{Credentials: credentials(t, ca, pki.RoleAgent, "n1"),
			Dial: func(ctx context.Context, kind, address string) (net.Conn, error) {
				c, err := network.Dial(ctx, "n1", address)
				return &muffled{c, &silent}, err
			}}
		http := client(t, d)
		if got, err := get(t.Context(), http, "https://s1/rude"); err != nil || got != "HTTP/2.0 waited" {
			t.Errorf("a peer that speaks: got %q, %v", got, err)
		}
		time.AfterFunc(2*time.Second, func() { silent.Store(true) })
		began := time.Now()
		_, err := get(t.Context(), http, "https://s1/rude")
		if took := time.Since(began); err == nil || took > 8*time.Second {
			t.Errorf("a peer that is silent after 2 s: given up after %s with %v", took, err)
		}
	})
}

// muffled is a connection that carries no data once silent is true.
type muffled struct {
	net.Conn
	silent *atomic.Bool
}

func (m *muffled) Read(b []byte) (int, error) {
	for {
		n, err := m.Conn.Read(b)
		if err != nil || !m.silent.Load() {
			return n, err
		}
	}
}

func (m *muffled) Write(b []byte) (int, error) {
	if m.silent.Load() {
		return len(b), nil
	}
	return m.Conn.Write(b)
}

// TestSlowHandshake: a connection is closed if its handshake is not complete after two seconds, which is the default.
// This applies to a peer that sends its hello byte by byte, and to a peer that sends one byte and then nothing.
func TestSlowHandshake(t *testing.T) {
	hello := clientHello(t)
	for name, pause := range map[string]time.Duration{"drip": 50 * time.Millisecond, "silent": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := memnet.New()
				s := start(t, credentials(t, authority(t, "c1"), pki.RoleServer, "s1"),
					stationConfig{raw: network.Listen("s1:443")})
				c := must(network.Dial(t.Context(), "n1", "s1:443"))(t)
				began := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					drip(ctx, c, hello, pause)
				}()
				_, err := c.Read(make([]byte, 1))
				if took := time.Since(began); took != 2*time.Second || !errors.Is(err, io.EOF) {
					t.Errorf("closed after %s with %v, want 2s and EOF", took, err)
				}
				cancel()
				<-done
				c.Close()
				synctest.Wait()
				if got := s.Stats(); got.Pending != 0 || got.HandshakeFailed != 1 {
					t.Errorf("got %+v", got)
				}
			})
		})
	}
}

func drip(ctx context.Context, c net.Conn, data []byte, pause time.Duration) {
	for _, b := range data {
		if _, err := c.Write([]byte{b}); err != nil {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// TestNobodyServes: if nobody accepts an authenticated connection, the listener closes this connection after 2 s.
func TestNobodyServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		creds := credentials(t, authority(t, "c1"), pki.RoleServer, "s1")
		l := must(transport.NewListener(network.Listen("s1:443"), transport.ListenerConfig{Credentials: creds}))(t)
		stop := background(l.Run)
		c := must(transport.Dialer{Credentials: creds, Dial: network.Dialer("n1")}.DialAPI(t.Context(), "tcp", "s1:443"))(t)
		began := time.Now()
		_, err := c.Read(make([]byte, 1))
		if took := time.Since(began); took != 2*time.Second || err == nil {
			t.Errorf("closed after %s with %v, want 2s and an error", took, err)
		}
		c.Close()
		synctest.Wait()
		if got := l.Stats(); got.API != 0 || got.APIRefused != 1 {
			t.Errorf("got %+v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
