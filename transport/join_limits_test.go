package transport_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/internal/testbed/memnet"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// exchange sends bytes over a newcomer's connection, and reads the reply.
func exchange(t testing.TB, conn net.Conn, send []byte) (reply transport.JoinReply) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(15 * time.Second))
	if _, err := conn.Write(send); err != nil {
		t.Fatal(err)
	}
	var head [4]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		t.Fatalf("no reply: %v", err)
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(conn, body); err != nil {
		t.Fatalf("half a reply: %v", err)
	}
	if err := transport.DecodeCBOR(body, &reply); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes after the reply, %v", n, err)
	}
	return reply
}

func message(t testing.TB, v any) []byte {
	t.Helper()
	body := must(transport.EncodeCBOR(v))(t)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// stranger connects from a loopback address as a newcomer does, and sends nothing.
func stranger(t testing.TB, from, addr string) *tls.Conn {
	t.Helper()
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	conn := must(tls.DialWithDialer(d, "tcp", addr,
		&tls.Config{InsecureSkipVerify: true, NextProtos: []string{pki.JoinProtocol}}))(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// A message that is too large, not strict CBOR or out of bounds is refused before anybody is asked.
func TestJoinMessages(t *testing.T) {
	ca := authority(t, "c1")
	s := admitting(t, credentials(t, ca, pki.RoleServer, "s1"),
		func(context.Context, net.Addr, transport.JoinRequest) (transport.JoinReply, error) {
			t.Error("a bad request was passed on")
			return transport.JoinReply{}, nil
		})
	raw := func(body ...byte) []byte { return append([]byte{0, 0, 0, byte(len(body))}, body...) }
	for name, tt := range map[string]struct {
		send []byte
		code model.Code
	}{
		"too large":         {[]byte{0, 1, 0, 1}, model.CodeTooLarge},
		"far too large":     {[]byte{0xff, 0xff, 0xff, 0xff}, model.CodeTooLarge},
		"nothing":           {raw(), model.CodeInvalid},
		"no CBOR":           {raw(0xff), model.CodeInvalid},
		"indefinite length": {raw(0xbf, 0xff), model.CodeInvalid},
		"an unknown field":  {raw(0xa1, 0x18, 99, 0), model.CodeInvalid},
		"a field twice":     {raw(0xa2, 1, 0x61, 'a', 1, 0x61, 'b'), model.CodeInvalid},
		"bytes after it":    {raw(0xa0, 0), model.CodeInvalid},
		"no token":          {message(t, transport.JoinRequest{Agent: []byte{1}}), model.CodeInvalid},
		"nothing asked for": {message(t, transport.JoinRequest{Token: "t"}), model.CodeInvalid},
		"a server nowhere":  {message(t, transport.JoinRequest{Token: "t", Server: []byte{1}}), model.CodeInvalid},
		"a bad address": {message(t, transport.JoinRequest{Token: "t", Agent: []byte{1}, Address: "a:0"}),
			model.CodeInvalid},
		"a large token": {message(t, transport.JoinRequest{Token: string(make([]byte, 257)), Agent: []byte{1}}),
			model.CodeInvalid},
		"a large certificate": {message(t, transport.JoinRequest{Token: "t", Agent: make([]byte, 8193)}), model.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			if got := exchange(t, stranger(t, "127.0.0.1", s.addr), tt.send); got.Problem == nil || got.Problem.Code != tt.code {
				t.Errorf("got %+v, want %s", got.Problem, tt.code)
			}
		})
	}
}

// Strangers who connect as newcomers and say nothing take only places of newcomers: 16 of each IPv4 address, 64 in all.
// Raft and the API go on. A newcomer without a place is told to try again, and a place that becomes free is used.
func TestNewcomersHaveTheirOwnPlaces(t *testing.T) {
	ca := authority(t, "c1")
	creds := credentials(t, ca, pki.RoleServer, "s1")
	held, letGo := make(chan struct{}, 100), make(chan struct{})
	s := start(t, creds, stationConfig{listener: transport.ListenerConfig{Limits: transport.Limits{MaxRaft: 2, MaxAPI: 2},
		Join: func(ctx context.Context, _ net.Addr, _ transport.JoinRequest) (transport.JoinReply, error) {
			held <- struct{}{}
			select {
			case <-letGo:
			case <-ctx.Done():
			}
			return transport.JoinReply{Cluster: "c1"}, nil
		}}})
	echoRaft(t, s)
	request := message(t, transport.JoinRequest{Token: "t", Agent: []byte{1}})
	take := func(from string) *tls.Conn {
		conn := stranger(t, from, s.addr)
		if _, err := conn.Write(request); err != nil {
			t.Fatal(err)
		}
		<-held
		return conn
	}
	busy := func(from string) {
		t.Helper()
		if got := exchange(t, stranger(t, from, s.addr), request); got.Problem == nil ||
			got.Problem.Code != model.CodeBusy || !got.Problem.Retryable {
			t.Errorf("a newcomer from %s beyond the limit got %+v", from, got)
		}
	}
	var all []*tls.Conn
	for i := range 4 {
		from := fmt.Sprintf("127.0.1.%d", i+1)
		for range 16 {
			all = append(all, take(from))
		}
		if i == 0 {
			busy(from)
		}
	}
	busy("127.0.2.1")
	if got := s.Stats(); got.Join != 64 || got.JoinRefused != 2 {
		t.Errorf("got %+v", got)
	}
	d := transport.Dialer{Credentials: creds}
	if got, err := get(t.Context(), client(t, d), "https://"+s.addr); err != nil {
		t.Errorf("the API: %q, %v", got, err)
	}
	raft := must(d.DialRaft(t.Context(), s.addr))(t)
	defer raft.Close()
	if err := ping(raft); err != nil {
		t.Errorf("raft: %v", err)
	}
	close(letGo)
	for _, conn := range all {
		if got := exchange(t, conn, nil); got.Cluster != "c1" {
			t.Errorf("got %+v", got)
		}
	}
	eventually(t, "the places are free", func() bool { return s.Stats().Join == 0 && s.Stats().Pending == 0 })
	_, _, err := transport.Join(t.Context(), []string{s.addr}, tokenFor(t, pki.RoleAgent, ca), agentRequest(t))
	if err != nil {
		t.Error(err)
	}
}

// A newcomer that sends no whole request keeps its place for five seconds. A reply is there within 20 s, even if the
// server would like to think longer. When the listener stops, it cuts off newcomers.
func TestSlowNewcomers(t *testing.T) {
	inBubble := func(name string, send []byte, check func(*testing.T, *tls.Conn, *station)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := memnet.New()
				ca := authority(t, "c1")
				s := start(t, credentials(t, ca, pki.RoleServer, "s1"),
					stationConfig{raw: network.Listen("s1:443"), listener: transport.ListenerConfig{
						Join: func(ctx context.Context, _ net.Addr, _ transport.JoinRequest) (transport.JoinReply, error) {
							<-ctx.Done()
							return transport.JoinReply{}, model.Refuse(model.CodeTimeout, "too slow")
						}}})
				conn := tls.Client(must(network.Dial(t.Context(), "n1", "s1:443"))(t),
					pki.JoinConfig(tokenFor(t, pki.RoleAgent, ca), nil))
				defer conn.Close()
				if err := conn.HandshakeContext(t.Context()); err != nil {
					t.Fatal(err)
				}
				conn.Write(send)
				check(t, conn, s)
				synctest.Wait()
				if got := s.Stats(); got.Join != 0 {
					t.Errorf("got %+v", got)
				}
			})
		})
	}
	request := message(t, transport.JoinRequest{Token: "t", Agent: []byte{1}})
	inBubble("half a request", request[:9], func(t *testing.T, conn *tls.Conn, _ *station) {
		began := time.Now()
		n, err := conn.Read(make([]byte, 1))
		if took := time.Since(began); n != 0 || err == nil || took != 5*time.Second {
			t.Errorf("closed after %s with %d bytes, %v", took, n, err)
		}
	})
	inBubble("a slow server", request, func(t *testing.T, conn *tls.Conn, _ *station) {
		began := time.Now()
		_, err := conn.Read(make([]byte, 1))
		if took := time.Since(began); err != nil || took > 20*time.Second {
			t.Errorf("a reply after %s, %v", took, err)
		}
		io.Copy(io.Discard, conn)
	})
	inBubble("a server that stops", request[:9], func(t *testing.T, conn *tls.Conn, s *station) {
		synctest.Wait()
		began := time.Now()
		if err := s.stop(); err != nil || time.Since(began) > time.Second {
			t.Errorf("stopped after %s, %v", time.Since(began), err)
		}
	})
}
