package transport_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// TestIdleStrangers: an API client and a raft peer can connect while a thousand silent connections are open or are
// being reopened. The handshake timeout is an hour, so it can't be what closes silent connections.
func TestIdleStrangers(t *testing.T) {
	ca := authority(t, "c1")
	creds := credentials(t, ca, pki.RoleServer, "s1")
	s := start(t, creds, stationConfig{listener: transport.ListenerConfig{
		HandshakeTimeout: time.Hour,
		Limits:           transport.Limits{MaxPending: 200},
	}})
	echoRaft(t, s)
	const strangers = 1000
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range strangers {
		wg.Go(func() { idle(ctx, s.addr) })
	}
	eventually(t, "strangers fill the port", func() bool { return s.Stats().Accepted > strangers })
	for i := range 5 {
		d := transport.Dialer{Credentials: creds}
		if _, err := get(t.Context(), client(t, d), "https://"+s.addr); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
		c, err := d.DialRaft(t.Context(), s.addr)
		if err != nil {
			t.Errorf("raft %d: %v", i, err)
			continue
		}
		if err := ping(c); err != nil {
			t.Errorf("raft %d: %v", i, err)
		}
		c.Close()
	}
	if got := s.Stats(); got.Pending > 200 || got.PendingEvicted == 0 || got.API == 0 {
		t.Errorf("limits did not hold: %+v", got)
	}
}

// idle keeps one silent connection open until ctx ends. It opens another one whenever the server closes it.
func idle(ctx context.Context, addr string) {
	for ctx.Err() == nil {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return
		}
		stop := context.AfterFunc(ctx, func() { c.Close() })
		c.Read(make([]byte, 1))
		stop()
		c.Close()
		select { // without a pause, the test would only measure the number of cores
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// TestBudgetsAreApart: if the limit for one kind of connection is reached, only connections of that kind are refused. A
// closed connection frees its place.
func TestBudgetsAreApart(t *testing.T) {
	ca := authority(t, "c1")
	creds := credentials(t, ca, pki.RoleServer, "s1")
	s := start(t, creds,
		stationConfig{listener: transport.ListenerConfig{Limits: transport.Limits{MaxRaft: 2, MaxAPI: 3, MaxAPIPerPeer: 2}}})
	echoRaft(t, s)
	d := transport.Dialer{Credentials: creds}
	raft := func() net.Conn { return must(d.DialRaft(t.Context(), s.addr))(t) }
	api := func(name string) net.Conn {
		d := transport.Dialer{Credentials: credentials(t, ca, pki.RoleAgent, name)}
		return must(d.DialAPI(t.Context(), "tcp", s.addr))(t)
	}
	closed := func(c net.Conn) bool {
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err := io.Copy(io.Discard, c)
		return !errors.Is(err, os.ErrDeadlineExceeded)
	}
	a, b := raft(), raft()
	defer b.Close()
	eventually(t, "raft is full", func() bool { return s.Stats().Raft == 2 })
	third := raft()
	defer third.Close()
	if !closed(third) {
		t.Error("a third raft connection stayed open")
	}
	one, two := api("n1"), api("n1")
	defer one.Close()
	defer two.Close()
	eventually(t, "n1 has its two", func() bool { return s.Stats().API == 2 })
	again := api("n1")
	defer again.Close()
	if !closed(again) {
		t.Error("a peer got more than its share")
	}
	other := api("n2")
	defer other.Close()
	eventually(t, "another peer gets in", func() bool { return s.Stats().API == 3 })
	full := api("n3")
	defer full.Close()
	if !closed(full) {
		t.Error("more API connections than allowed")
	}
	for _, c := range []net.Conn{b} {
		if err := ping(c); err != nil {
			t.Errorf("an open connection suffered: %v", err)
		}
	}
	a.Close()
	eventually(t, "the place is free again", func() bool { return s.Stats().Raft == 1 })
	c := raft()
	defer c.Close()
	if err := ping(c); err != nil {
		t.Error(err)
	}
	s.SetLimits(transport.Limits{MaxRaft: 3})
	more := raft()
	defer more.Close()
	if err := ping(more); err != nil {
		t.Errorf("after the limit was raised: %v", err)
	}
	if got := s.Stats(); got.RaftRefused != 1 || got.APIRefused != 2 {
		t.Errorf("refusals were counted as %+v", got)
	}
}

// TestGarbage: a connection whose bytes are not valid TLS is closed. The next client is served.
func TestGarbage(t *testing.T) {
	ca := authority(t, "c1")
	creds := credentials(t, ca, pki.RoleServer, "s1")
	s := start(t, creds, stationConfig{})
	random := make([]byte, 64<<10)
	rand.Read(random)
	hello := clientHello(t)
	inputs := map[string][]byte{
		"nothing":           nil,
		"one byte":          {0x16},
		"zeros":             make([]byte, 4096),
		"random":            random,
		"huge record":       {0x16, 3, 1, 0xff, 0xff, 1, 2, 3},
		"endless handshake": append([]byte{0x16, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff}, make([]byte, 0x4000)...),
		"half a hello":      hello[:len(hello)/2],
		"broken hello":      append(bytes.Clone(hello[:60]), random[:len(hello)-60]...),
		"ssh":               []byte("SSH-2.0-OpenSSH_9.6\r\n"),
		"raft in the clear": append([]byte{0}, random[:100]...),
	}
	for name, in := range inputs {
		t.Run(name, func(t *testing.T) {
			before := s.Stats().HandshakeFailed
			c := must(net.Dial("tcp", s.addr))(t)
			defer c.Close()
			c.Write(in)
			c.(*net.TCPConn).CloseWrite()
			eventually(t, "it is turned away", func() bool {
				return s.Stats().HandshakeFailed == before+1 && s.Stats().Pending == 0
			})
			if _, err := get(t.Context(), client(t, transport.Dialer{Credentials: creds}), "https://"+s.addr); err != nil {
				t.Errorf("the next client: %v", err)
			}
		})
	}
}

// clientHello returns the first bytes that a TLS client sends.
func clientHello(t *testing.T) []byte {
	near, far := net.Pipe()
	var got bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 16<<10)
		n, _ := far.Read(b)
		got.Write(b[:n])
		far.Close()
	}()
	tls.Client(near, &tls.Config{ServerName: "server.outspan"}).Handshake()
	<-done
	return got.Bytes()
}

func TestPlainHTTP(t *testing.T) {
	s := start(t, credentials(t, authority(t, "c1"), pki.RoleServer, "s1"), stationConfig{})
	c := must(net.Dial("tcp", s.addr))(t)
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(c, "GET /v1/status HTTP/1.1\r\nHost: x\r\n"+strings.Repeat("X-Fill: 0123456789\r\n", 500)+"\r\n")
	got := string(must(io.ReadAll(c))(t))
	if !strings.HasPrefix(got, "HTTP/1.0 400 ") || !strings.Contains(got, "use https") {
		t.Errorf("got %q", got)
	}
}

// TestStop: before Run returns, it closes all connections, even those in a handshake, and frees the port.
func TestStop(t *testing.T) {
	ca := authority(t, "c1")
	creds := credentials(t, ca, pki.RoleServer, "s1")
	s := start(t, creds, stationConfig{listener: transport.ListenerConfig{HandshakeTimeout: time.Hour}})
	echoRaft(t, s)
	stranger := must(net.Dial("tcp", s.addr))(t)
	defer stranger.Close()
	raft := must(transport.Dialer{Credentials: creds}.DialRaft(t.Context(), s.addr))(t)
	defer raft.Close()
	eventually(t, "both are in", func() bool { return s.Stats().Pending == 1 && s.Stats().Raft == 1 })
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	for _, c := range []net.Conn{stranger, raft} {
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("a connection stayed open: %v", err)
		}
	}
	l, err := transport.ListenTCP(t.Context(), s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = transport.ListenTCP(t.Context(), s.addr)
	wantCode(t, err, model.CodeAddressInUse, s.addr)
	if got := s.Stats(); got.Pending != 0 || got.Raft != 0 {
		t.Errorf("left behind: %+v", got)
	}
}

func TestListenerFails(t *testing.T) {
	raw := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	l := must(transport.NewListener(raw,
		transport.ListenerConfig{Credentials: credentials(t, authority(t, "c1"), pki.RoleServer, "s1")}))(t)
	stop := background(l.Run)
	raw.Close()
	eventually(t, "the API side ends", func() bool { _, err := l.API().Accept(); return err != nil })
	wantCode(t, stop(), model.CodeListen, raw.Addr().String())
	_, err := transport.NewListener(raw, transport.ListenerConfig{})
	wantCode(t, err, model.CodeCertificateInvalid)
}

func TestIsLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:7640": true, "127.9.9.9:0": true, "[::1]:7640": true, "::1": true,
		"localhost": true, "localhost:7640": true, "": false, ":7640": false, "0.0.0.0:7640": false, "[::]:7640": false,
		"10.0.0.1": false, "localhost.example.com:1": false, "127.0.0.1.example.com": false, "127.0.0.1:x": false,
	} {
		if got := transport.IsLoopback(addr); got != want {
			t.Errorf("IsLoopback(%q) = %v, want %v", addr, got, want)
		}
	}
}

// TestCrowds: a source address that fills the port loses its own connections, and other sources lose none. Silent
// connections are closed before connections that have sent a hello.
func TestCrowds(t *testing.T) {
	s := start(t, credentials(t, authority(t, "c1"), pki.RoleServer, "s1"),
		stationConfig{listener: transport.ListenerConfig{
			HandshakeTimeout: time.Hour,
			Limits:           transport.Limits{MaxPending: 10},
		}})
	hello := clientHello(t)
	open := func(from string, says []byte) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}
		before := s.Stats().Accepted
		c := must(d.DialContext(t.Context(), "tcp", s.addr))(t)
		t.Cleanup(func() { c.Close() })
		c.Write(says)
		if len(says) > 0 { // the server's answer shows that it has read the hello
			c.SetReadDeadline(time.Now().Add(10 * time.Second))
			c.Read(make([]byte, 1))
		}
		eventually(t, "it is accepted", func() bool { return s.Stats().Accepted == before+1 })
		return c
	}
	isOpen := func(c net.Conn) bool {
		c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, err := io.Copy(io.Discard, c)
		return errors.Is(err, os.ErrDeadlineExceeded)
	}
	quiet := open("127.0.0.2", nil)
	half := open("127.0.0.1", hello)
	for range 30 {
		open("127.0.0.1", nil)
	}
	if !isOpen(quiet) || !isOpen(half) {
		t.Errorf("silent strangers pushed out: another source's %v, one that said hello %v", !isOpen(quiet), !isOpen(half))
	}
	for range 30 {
		open("127.0.0.1", hello)
	}
	if !isOpen(quiet) {
		t.Error("strangers that say hello pushed out another source's connection")
	}
	if isOpen(half) {
		t.Error("the oldest of the largest crowd stayed")
	}
	if got := s.Stats(); got.Pending != 10 || got.PendingEvicted != 52 {
		t.Errorf("got %+v, want 10 pending and 52 evicted", got)
	}
}
