package transport_test

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/internal/testbed/memnet"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// No call fails while a CA replaces another: neither those that are under way when a certificate is replaced or the CA
// is dropped, nor those that begin then. The agent renews before the server that it calls, and that server before the
// one that it calls, so their connections show certificates of the old CA to the end.
func TestNoCallFailsWhenACAIsDropped(t *testing.T) {
	r := newReplacing(t)
	s1, s2, n1 := r.member(pki.RoleServer, "s1"), r.member(pki.RoleServer, "s2"), r.member(pki.RoleAgent, "n1")
	cfg := stationConfig{http: transport.HTTPConfig{Agents: r.answerAgent}, handler: http.HandlerFunc(r.answer)}
	at1, at2 := start(t, s1, cfg), start(t, s2, cfg)
	agent := must(transport.NewClient(transport.ClientConfig{Addresses: []string{"https://" + at1.addr}, Credentials: n1,
		RetryFor: -1}))(t)
	t.Cleanup(agent.Close)
	to1, to2 := client(t, transport.Dialer{Credentials: s2}), client(t, transport.Dialer{Credentials: s1})

	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	var calls, failed atomic.Int64
	keepCalling := func(what string, call func() error) {
		callers.Go(func() {
			for ctx.Err() == nil {
				calls.Add(1)
				if err := call(); err != nil {
					failed.Add(1)
					t.Logf("%s: %v", what, err)
				}
			}
		})
	}
	for _, path := range []string{"/", "/poll"} {
		keepCalling("s2 asks s1 "+path, func() error {
			_, err := get(t.Context(), to1, "https://"+at1.addr+path)
			return err
		})
		keepCalling("s1 asks s2 "+path, func() error {
			_, err := get(t.Context(), to2, "https://"+at2.addr+path)
			return err
		})
	}
	keepCalling("n1 reports", func() error {
		_, err := agent.Report(t.Context(), transport.ReportRequest{Epoch: 1})
		return err
	})
	keepCalling("n1 polls", func() error {
		_, err := agent.Assignments(t.Context(), transport.AssignmentsRequest{Wait: model.Minute})
		return err
	})
	pause := func() { time.Sleep(300 * time.Millisecond) } // less than a poll takes
	pause()
	for _, one := range []*transport.Credentials{n1, s1, s2} {
		if err := one.Use(managedPair(t, r.next, one.Identity().Role, one.Identity().Name), nil); err != nil {
			t.Fatal(err)
		}
		pause()
	}
	for _, one := range []*transport.Credentials{s1, n1, s2} {
		if err := one.UseRoots([][]byte{r.next.Root().Raw}); err != nil {
			t.Fatal(err)
		}
		pause()
	}
	stop()
	callers.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d of %d calls failed", failed.Load(), calls.Load())
	}
}

// replacing is a cluster in which one CA replaces another.
type replacing struct {
	t         testing.TB
	old, next *transport.Authority
}

func newReplacing(t testing.TB) *replacing {
	return &replacing{t, authority(t, "c1"), authority(t, "c1")}
}

// member returns the credentials of a member that trusts both CAs and has a certificate of the old one.
func (r *replacing) member(role pki.Role, name string) *transport.Credentials {
	creds := credentials(r.t, r.old, role, name)
	if err := creds.UseRoots([][]byte{r.old.Root().Raw, r.next.Root().Raw}); err != nil {
		r.t.Fatal(err)
	}
	return creds
}

// pollFor is how long a long poll waits for news.
const pollFor = time.Second

// answer answers a long poll after pollFor, and everything else soon.
func (r *replacing) answer(w http.ResponseWriter, req *http.Request) {
	wait := 10 * time.Millisecond
	if req.URL.Path == "/poll" {
		wait = pollFor
	}
	waitFor(req.Context(), wait)
	_, _ = w.Write([]byte("ok"))
}

func (r *replacing) answerAgent(ctx context.Context, _ model.Subject, call transport.AgentCall, question []byte) (
	[]byte, error) {
	if call == transport.CallAssignments {
		waitFor(ctx, pollFor)
		return transport.EncodeCBOR(transport.Assignments{})
	}
	waitFor(ctx, 10*time.Millisecond)
	return answerReport(question)
}

func waitFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	case <-transport.Stopping(ctx):
	}
}

// A peer whose certificate is of a dropped CA loses its connections: those that it dialled after 15 s, and its long
// polls end at once; those that this process dialled after 100 s.
func TestDroppedCAEndsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		r := newReplacing(t)
		mine, theirs := r.member(pki.RoleServer, "s1"), r.member(pki.RoleServer, "s2")
		own := start(t, mine, stationConfig{raw: network.Listen("s1:443"), dial: network.Dialer("s1"),
			handler: http.HandlerFunc(r.answer)})
		other := start(t, theirs, stationConfig{raw: network.Listen("s2:443"), dial: network.Dialer("s2")})
		echoRaft(t, own)
		echoRaft(t, other)
		if err := mine.Use(managedPair(t, r.next, pki.RoleServer, "s1"), nil); err != nil {
			t.Fatal(err)
		}
		ended := func(dial func() (net.Conn, error)) <-chan time.Time {
			conn := must(dial())(t)
			if err := ping(conn); err != nil {
				t.Fatal(err)
			}
			end := make(chan time.Time, 1)
			go func() {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(time.Hour))
				_, _ = conn.Read(make([]byte, 1))
				end <- time.Now()
			}()
			return end
		}
		accepted := ended(func() (net.Conn, error) { return other.raft.DialRaft("s1:443", time.Second) })
		dialled := ended(func() (net.Conn, error) { return own.raft.DialRaft("s2:443", time.Second) })
		c := client(t, transport.Dialer{Credentials: theirs, Dial: network.Dialer("s2")})
		poll := getLater(t.Context(), c, "https://s1:443/poll")
		synctest.Wait()
		began := time.Now()
		if err := mine.UseRoots([][]byte{r.next.Root().Raw}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := <-poll; got.err != nil || got.body != "ok" || time.Since(began) > pollFor/2 {
			t.Errorf("after %s a long poll got %q, %v", time.Since(began), got.body, got.err)
		}
		if took := (<-accepted).Sub(began); took < 15*time.Second || took > 16*time.Second {
			t.Errorf("the accepted connection ended after %s", took)
		}
		select {
		case <-dialled:
			t.Error("the dialled connection ended as early")
		default:
		}
		if took := (<-dialled).Sub(began); took < 100*time.Second || took > 101*time.Second {
			t.Errorf("the dialled connection ended after %s", took)
		}
	})
}

// A revocation ends the connections of a peer at once, also while they have time to finish their calls.
func TestRevocationEndsDrainingConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		r := newReplacing(t)
		mine, theirs := r.member(pki.RoleServer, "s1"), r.member(pki.RoleServer, "s2")
		own := start(t, mine, stationConfig{raw: network.Listen("s1:443"), dial: network.Dialer("s1")})
		other := start(t, theirs, stationConfig{raw: network.Listen("s2:443"), dial: network.Dialer("s2")})
		echoRaft(t, own)
		echoRaft(t, other)
		conns := []net.Conn{must(other.raft.DialRaft("s1:443", time.Second))(t),
			must(own.raft.DialRaft("s2:443", time.Second))(t)}
		for _, conn := range conns { // with TLS 1.3 the caller is ready before the other side
			if err := ping(conn); err != nil {
				t.Fatal(err)
			}
		}
		if err := mine.Use(managedPair(t, r.next, pki.RoleServer, "s1"), [][]byte{r.next.Root().Raw}); err != nil {
			t.Fatal(err)
		}
		for _, conn := range conns {
			if err := ping(conn); err != nil {
				t.Error(err)
			}
		}
		n := own.CloseWhere(func(id pki.Identity, _ *x509.Certificate) bool { return id.Name == "s2" })
		if n != len(conns) {
			t.Errorf("%d connections were closed, want %d", n, len(conns))
		}
		for _, conn := range conns {
			if err := ping(conn); err == nil {
				t.Error("a connection of a revoked peer goes on")
			}
			_ = conn.Close()
		}
	})
}
