package transport_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/testbed/memnet"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

func agentClient(t testing.TB, ca *transport.Authority, addresses ...string) *transport.Client {
	t.Helper()
	return agentClientOf(t, ca, "n1", addresses...)
}

func agentClientOf(t testing.TB, ca *transport.Authority, name string, addresses ...string) *transport.Client {
	t.Helper()
	for i, a := range addresses {
		addresses[i] = "https://" + a
	}
	c :=
		must(
			transport.NewClient(transport.ClientConfig{Addresses: addresses,
				Credentials: credentials(t, ca, pki.RoleAgent, name), RetryFor: -1}))(t)
	t.Cleanup(c.Close)
	return c
}

// answerReport answers a report with its epoch as the index.
func answerReport(question []byte) ([]byte, error) {
	var q transport.ReportRequest
	if err := transport.DecodeCBOR(question, &q); err != nil {
		return nil, err
	}
	return transport.EncodeCBOR(transport.ReportReply{Index: q.Epoch})
}

// The calls of an agent share one connection. Each call gets its own answer, in whatever order the answers arrive. The
// server knows the caller of each call.
func TestAgentCalls(t *testing.T) {
	ca := authority(t, "test")
	var late sync.WaitGroup
	late.Add(9)
	s := agentServer(t, ca,
		func(_ context.Context, who model.Subject, call transport.AgentCall, question []byte) ([]byte, error) {
			if who.Kind != model.SubjectAgent || who.Name != "n1" || call != transport.CallReport {
				return nil, fmt.Errorf("%s of %s", call, who)
			}
			late.Done()
			late.Wait() // until all nine calls have arrived
			return answerReport(question)
		})
	c := agentClient(t, ca, s.addr)
	var wg sync.WaitGroup
	for i := range uint64(9) {
		wg.Go(func() {
			if got, err := c.Report(t.Context(), transport.ReportRequest{Epoch: i}); err != nil || got.Index != i {
				t.Errorf("call %d: got %d, %v", i, got.Index, err)
			}
		})
	}
	wg.Wait()
	if n := s.Stats().API; n != 1 {
		t.Errorf("%d connections", n)
	}
	c.Close()
	eventually(t, "the connection is closed", func() bool { return s.Stats().API == 0 })
	late.Add(1)
	if got, err := c.Report(t.Context(), transport.ReportRequest{Epoch: 5}); err != nil || got.Index != 5 {
		t.Errorf("after the client was closed, as over HTTP: %d, %v", got.Index, err)
	}
}

// A large answer arrives whole. Another call is answered meanwhile.
func TestLargeAnswer(t *testing.T) {
	ca := authority(t, "test")
	text := strings.Repeat("0123456789", 1<<20)
	s := agentServer(t, ca,
		func(_ context.Context, _ model.Subject, call transport.AgentCall, question []byte) ([]byte, error) {
			if call == transport.CallReport {
				return answerReport(question)
			}
			return transport.EncodeCBOR(
				transport.Services{Services: []transport.ServiceBackends{{Name: model.ServiceName(text)}}})
		})
	c := agentClient(t, ca, s.addr)
	var wg sync.WaitGroup
	wg.Go(func() {
		if got, err := c.Services(t.Context(), transport.ServicesRequest{}); err != nil || len(got.Services) != 1 ||
			string(got.Services[0].Name) != text {
			t.Errorf("the answer differs: %v", err)
		}
	})
	wg.Go(func() { must(c.Report(t.Context(), transport.ReportRequest{Epoch: 3}))(t) })
	wg.Wait()
}

// If the caller cancels a call or closes the connection, the context of the call ends at the server.
func TestAgentHangsUp(t *testing.T) {
	ca := authority(t, "test")
	entered, left := make(chan bool, 4), make(chan bool, 4)
	s := agentServer(t, ca,
		func(ctx context.Context, _ model.Subject, call transport.AgentCall, question []byte) ([]byte, error) {
			if call == transport.CallReport {
				return answerReport(question)
			}
			entered <- true
			<-ctx.Done()
			left <- true
			return nil, ctx.Err()
		})
	c := agentClient(t, ca, s.addr)
	ctx, hangUp := context.WithCancel(t.Context())
	go func() { <-entered; hangUp() }()
	if _, err := c.Assignments(ctx, transport.AssignmentsRequest{Wait: model.Minute}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-left
	must(c.Report(t.Context(), transport.ReportRequest{}))(t)
	if n := s.Stats().Accepted; n != 1 {
		t.Errorf("%d connections", n)
	}
	raw := rawAgent(t, ca, s.addr)
	raw.send(t, 1, byte(transport.CallAssignments), nil)
	<-entered
	raw.Close()
	<-left
}

// A server that stops answers the calls that watch Stopping. Agents send their next calls to another server.
func TestAgentsOfAStoppingServer(t *testing.T) {
	ca := authority(t, "test")
	entered := make(chan bool, 1)
	first := agentServer(t, ca,
		func(ctx context.Context, _ model.Subject, _ transport.AgentCall, _ []byte) ([]byte, error) {
			entered <- true
			<-transport.Stopping(ctx)
			return transport.EncodeCBOR(transport.Assignments{Index: 1})
		})
	second := agentServer(t, ca, func(context.Context, model.Subject, transport.AgentCall, []byte) ([]byte, error) {
		return transport.EncodeCBOR(transport.Assignments{Index: 2})
	})
	c := agentClient(t, ca, first.addr, second.addr)
	done := make(chan error, 1)
	go func() { <-entered; done <- first.stopAPI() }()
	if got, err := c.Assignments(t.Context(), transport.AssignmentsRequest{Wait: model.Minute}); err != nil ||
		got.Index != 1 {
		t.Errorf("of the server that stops: %+v, %v", got, err)
	}
	if err := <-done; err != nil {
		t.Errorf("it stopped with %v", err)
	}
	if got, err := c.Assignments(t.Context(), transport.AssignmentsRequest{}); err != nil || got.Index != 2 {
		t.Errorf("of the other one: %+v, %v", got, err)
	}
}

// A server that stops cuts off an agent's call that has no answer after ShutdownTimeout.
func TestRudeAgentCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		ca := authority(t, "c1")
		entered := make(chan bool, 1)
		s := start(t, credentials(t, ca, pki.RoleServer, "s1"),
			stationConfig{raw: network.Listen("s1:443"), http: transport.HTTPConfig{
				Agents: func(ctx context.Context, _ model.Subject, _ transport.AgentCall, _ []byte) ([]byte, error) {
					entered <- true
					<-ctx.Done()
					return nil, ctx.Err()
				},
			}})
		c := must(transport.NewClient(transport.ClientConfig{
			Addresses: []string{"https://s1:443"}, Credentials: credentials(t, ca, pki.RoleAgent, "n1"), RetryFor: -1,
			Dial: network.Dialer("n1"),
		}))(t)
		defer c.Close()
		failed := make(chan error, 1)
		go func() {
			_, err := c.Assignments(t.Context(), transport.AssignmentsRequest{Wait: model.Minute})
			failed <- err
		}()
		<-entered
		began := time.Now()
		wantCode(t, s.stopAPI(), model.CodeShutdownTimeout, "5s")
		if took := time.Since(began); took < 5*time.Second || took > 7*time.Second {
			t.Errorf("stopping took %s, want 5 s and a little", took)
		}
		if err := <-failed; err == nil {
			t.Error("the call that was cut off was answered")
		}
	})
}

// An agent gives up a call if the server sends nothing for a few seconds, not even answers to pings. A connection on
// which calls wait for an answer stays open, here for an hour. A connection without calls is closed.
func TestSilentServerOfAnAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		ca := authority(t, "c1")
		s := start(t, credentials(t, ca, pki.RoleServer, "s1"),
			stationConfig{raw: network.Listen("s1:443"), http: transport.HTTPConfig{
				Agents: func(ctx context.Context, _ model.Subject, _ transport.AgentCall, _ []byte) ([]byte, error) {
					select {
					case <-ctx.Done():
					case <-time.After(time.Minute):
					}
					return transport.EncodeCBOR(transport.Assignments{Index: 1})
				},
			}})
		var silent atomic.Bool
		c := must(transport.NewClient(transport.ClientConfig{
			Addresses: []string{"https://s1:443"}, Credentials: credentials(t, ca, pki.RoleAgent, "n1"), RetryFor: -1,
			Dial: func(ctx context.Context, kind, address string) (net.Conn, error) {
				c, err := network.Dial(ctx, "n1", address)
				return &muffled{c, &silent}, err
			},
		}))(t)
		defer c.Close()
		for range 60 {
			must(c.Assignments(t.Context(), transport.AssignmentsRequest{Wait: model.Minute}))(t)
		}
		if n := s.Stats(); n.Accepted != 1 || n.API != 1 {
			t.Errorf("after an hour: %+v", n)
		}
		time.Sleep(2 * time.Minute)
		if n := s.Stats(); n.API != 0 {
			t.Errorf("two minutes later: %+v", n)
		}
		time.AfterFunc(2*time.Second, func() { silent.Store(true) })
		began := time.Now()
		_, err := c.Assignments(t.Context(), transport.AssignmentsRequest{Wait: model.Minute})
		wantCode(t, err, model.CodeUnknownOutcome, "no sign of life")
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("given up after %s", took)
		}
		silent.Store(false)
		time.Sleep(time.Minute)
		if n := s.Stats(); n.API != 0 {
			t.Errorf("the server holds the connection of an agent that is away: %+v", n)
		}
	})
}

// A large answer may arrive for longer than either end tolerates silence. The parts of the answer and the agent's pings
// are signs of life, so the connection stays open.
func TestSlowAnswerToAnAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		ca := authority(t, "c1")
		text := strings.Repeat("0123456789", 1<<17)
		s := start(t, credentials(t, ca, pki.RoleServer, "s1"),
			stationConfig{raw: network.Listen("s1:443"), http: transport.HTTPConfig{
				Agents: func(_ context.Context, _ model.Subject, call transport.AgentCall, question []byte) ([]byte, error) {
					if call == transport.CallReport {
						return answerReport(question)
					}
					return transport.EncodeCBOR(
						transport.Services{Services: []transport.ServiceBackends{{Name: model.ServiceName(text)}}})
				},
			}})
		c := must(transport.NewClient(transport.ClientConfig{
			Addresses: []string{"https://s1:443"}, Credentials: credentials(t, ca, pki.RoleAgent, "n1"), RetryFor: -1,
			Dial: func(ctx context.Context, kind, address string) (net.Conn, error) {
				c, err := network.Dial(ctx, "n1", address)
				return &slow{c}, err
			},
		}))(t)
		defer func() { c.Close(); time.Sleep(time.Minute) }() // the connection's reader may still sleep in slow.Read
		began := time.Now()
		got, err := c.Services(t.Context(), transport.ServicesRequest{Wait: 5 * model.Minute})
		if err != nil || len(got.Services) != 1 || string(got.Services[0].Name) != text {
			t.Errorf("the answer differs after %s: %v", time.Since(began), err)
		}
		if took := time.Since(began); took < time.Minute {
			t.Errorf("it took %s, want more than a minute", took)
		}
		must(c.Report(t.Context(), transport.ReportRequest{}))(t)
		if n := s.Stats().Accepted; n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// slow is a connection that reads 16 KiB a second.
type slow struct{ net.Conn }

func (s *slow) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	time.Sleep(time.Duration(n) * time.Second / (16 << 10))
	return n, err
}

// If an agent can't call a server, it gets an error that says why.
func TestAgentRefused(t *testing.T) {
	ca, other := authority(t, "test"), authority(t, "test")
	s := agentServer(t, ca, func(context.Context, model.Subject, transport.AgentCall, []byte) ([]byte, error) {
		return nil, nil
	})
	_, err := agentClient(t, other, s.addr).Register(t.Context(), transport.RegisterRequest{})
	wantCode(t, err, model.CodeCertificateRefused, "another CA")
	_, err = agentClient(t, ca, strings.TrimPrefix(closedPort(t), "https://")).
		Register(t.Context(), transport.RegisterRequest{})
	wantCode(t, err, model.CodeUnreachable, "connection refused")
	plain := apiServer(t, ca, func(http.ResponseWriter, *http.Request) {})
	_, err = agentClient(t, ca, strings.TrimPrefix(plain, "https://")).Register(t.Context(), transport.RegisterRequest{})
	if err == nil {
		t.Error("a server without an answer for agents has answered")
	}
	socket := must(transport.NewClient(transport.ClientConfig{Addresses: []string{"unix:///nowhere"}, RetryFor: -1}))(t)
	_, err = socket.Register(t.Context(), transport.RegisterRequest{})
	wantCode(t, err, model.CodeInvalid, "no address for an agent")
}

// rawConn sends and receives single frames of the agents' protocol.
type rawConn struct{ net.Conn }

func rawAgent(t testing.TB, ca *transport.Authority, address string) rawConn {
	t.Helper()
	c := must(transport.Dialer{Credentials: credentials(t, ca, pki.RoleAgent, "n1")}.DialAgent(t.Context(),
		address))(t)
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	return rawConn{c}
}

func (c rawConn) send(t testing.TB, call uint32, kind byte, body []byte) {
	t.Helper()
	packet := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	packet = append(binary.BigEndian.AppendUint32(packet, call), kind)
	if _, err := c.Write(append(packet, body...)); err != nil {
		t.Error(err)
	}
}

// next returns the kind and the body of the next frame.
func (c rawConn) next() (kind byte, body []byte, err error) {
	head := make([]byte, 9)
	if _, err := io.ReadFull(c, head); err != nil {
		return 0, nil, err
	}
	body = make([]byte, binary.BigEndian.Uint32(head))
	_, err = io.ReadFull(c, body)
	return head[8], body, err
}

// An invalid frame closes the connection that it arrives on, and no other. A call is refused if 32 calls are already
// open on its connection.
func TestAgentFrames(t *testing.T) {
	ca := authority(t, "test")
	s := agentServer(t, ca,
		func(ctx context.Context, _ model.Subject, call transport.AgentCall, question []byte) ([]byte, error) {
			if call == transport.CallReport {
				return question, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})
	for what, packet := range map[string][]byte{
		"unknown kind":  {0, 0, 0, 0, 0, 0, 0, 1, 200},
		"4 GiB":         {255, 255, 255, 255, 0, 0, 0, 1, 2},
		"a call twice":  {0, 0, 0, 0, 0, 0, 0, 1, 3, 0, 0, 0, 0, 0, 0, 0, 1, 3},
		"an answer":     {0, 0, 0, 0, 0, 0, 0, 1, 128},
		"text":          []byte("GET / HTTP/1.1\r\nHost: s1\r\n\r\n"),
		"half a header": {0, 0, 0},
	} {
		c := rawAgent(t, ca, s.addr)
		if _, err := c.Write(packet); err != nil {
			t.Error(err)
		}
		if what == "half a header" {
			c.Close()
			continue
		}
		if kind, body, err := c.next(); err == nil {
			t.Errorf("%s: answered with %d %q", what, kind, body)
		}
	}
	c := rawAgent(t, ca, s.addr)
	c.send(t, 0, 130, nil)
	if kind, _, err := c.next(); kind != 131 || err != nil {
		t.Errorf("a ping is answered with %d, %v", kind, err)
	}
	body := bytes.Repeat([]byte("x"), 100_000)
	c.send(t, 7, byte(transport.CallReport), body)
	if kind, got, err := c.next(); kind != 128 || err != nil || !bytes.Equal(got, body) {
		t.Errorf("a report is answered with %d and %d bytes, %v", kind, len(got), err)
	}
	for i := range uint32(33) {
		c.send(t, 100+i, byte(transport.CallAssignments), nil)
	}
	kind, got, err := c.next()
	var p api.Problem
	if kind != 129 || err != nil || transport.DecodeCBOR(got, &p) != nil || p.Code != model.CodeBusy {
		t.Errorf("one call too many is answered with %d %q, %v", kind, got, err)
	}
	c.send(t, 999, 0, nil) // cancels a call that does not exist
	c.send(t, 100, 0, nil)
	c.send(t, 8, byte(transport.CallReport), nil)
	if kind, _, err := c.next(); kind != 128 || err != nil {
		t.Errorf("after a canceled call: %d, %v", kind, err)
	}
}
