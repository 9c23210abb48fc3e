package transport_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// apiServer starts an HTTPS server on loopback with the certificate of a cluster's server, and returns its address. The
// server runs until the test ends.
func apiServer(t testing.TB, ca *transport.Authority, h http.HandlerFunc) (address string) {
	t.Helper()
	return serverWith(t, credentials(t, ca, pki.RoleServer, "s1"), h)
}

func refuseWith(w http.ResponseWriter, code model.Code) {
	p := api.NewProblem(model.Refuse(code, "refused on purpose").WithHint("do nothing"))
	p.Index = 42
	w.Header().Set("Content-Type", api.ContentTypeProblem)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

func newClient(t testing.TB, ca *transport.Authority, retry time.Duration, addresses ...string) *transport.Client {
	t.Helper()
	c := must(transport.NewClient(transport.ClientConfig{
		Addresses: addresses, Credentials: credentials(t, ca, pki.RoleCLI, "alice"), RetryFor: retry,
	}))(t)
	t.Cleanup(c.Close)
	return c
}

// closedPort returns an address on which nobody listens.
func closedPort(t testing.TB) string {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return "https://" + l.Addr().String()
}

// The client skips a server that can't be reached or knows no leader. Later requests go first to the server that
// carried out the last one.
func TestClientFailsOver(t *testing.T) {
	ca := authority(t, "test")
	var calls atomic.Int32
	busy := apiServer(t, ca, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		refuseWith(w, model.CodeNoLeader)
	})
	good := apiServer(t, ca, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.HeaderIndex, "7")
		io.WriteString(w, `{"path":"`+r.URL.Path+`"}`)
	})
	c := newClient(t, ca, -1, closedPort(t), busy, good)
	for range 3 {
		raw, index, err := c.Do(t.Context(), http.MethodGet, "/v1/nodes/n1", nil, nil)
		if err != nil || index != 7 || string(raw) != `{"path":"/v1/nodes/n1"}` {
			t.Fatalf("got %s at %d: %v", raw, index, err)
		}
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the server that did not help was asked %d times, want once", n)
	}
}

func TestClientUnreachable(t *testing.T) {
	ca := authority(t, "test")
	one, two := closedPort(t), closedPort(t)
	begin := time.Now()
	_, _, err := newClient(t, ca, 0, one, two).Do(t.Context(), http.MethodGet, "/v1/nodes", nil, nil)
	wantCode(t, err, model.CodeUnreachable, one, two, "connection refused", "OUTSPAN_ADDR")
	if api.ExitOfError(err) != api.ExitTransient || time.Since(begin) > 5*time.Second {
		t.Errorf("exit class %d after %s", api.ExitOfError(err), time.Since(begin))
	}
	_, err = transport.NewClient(transport.ClientConfig{Addresses: []string{"http://127.0.0.1:1"}})
	wantCode(t, err, model.CodeInvalid, "https://")
	_, err = transport.NewClient(transport.ClientConfig{Addresses: []string{"https://127.0.0.1:1"}})
	wantCode(t, err, model.CodeCertificateInvalid, "OUTSPAN_CACERT")
	_, err = transport.NewClient(transport.ClientConfig{})
	wantCode(t, err, model.CodeInvalid, "OUTSPAN_ADDR")
}

// If a server's certificate is from another CA, the client's error explains this, even if another server can't be
// reached.
func TestClientWrongCertificate(t *testing.T) {
	address := apiServer(t, authority(t, "test"), func(http.ResponseWriter, *http.Request) {})
	_, _, err := newClient(t, authority(t, "test"), -1, closedPort(t), address).
		Do(t.Context(), http.MethodGet, "/v1/nodes", nil, nil)
	wantCode(t, err, model.CodeCertificateRefused, "another CA")
	if api.ExitOfError(err) != api.ExitForbidden {
		t.Errorf("exit class %d", api.ExitOfError(err))
	}
}

// The client repeats a call if the servers have no leader or the outcome is unknown. A write keeps its request id, so
// it is carried out only once.
func TestClientRetries(t *testing.T) {
	ca := authority(t, "test")
	var mu sync.Mutex
	var ids []string
	address := apiServer(t, ca, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, r.URL.Query().Get("request_id"))
		body, _ := io.ReadAll(r.Body)
		switch len(ids) {
		case 1:
			refuseWith(w, model.CodeNoLeader)
		case 2:
			refuseWith(w, model.CodeUnknownOutcome)
		default:
			w.Write(body)
		}
	})
	c := newClient(t, ca, 0, address)
	raw, _, err := c.Do(t.Context(), http.MethodPost, "/v1/jobs/web/scale", nil, map[string]int{"count": 3})
	if err != nil || string(raw) != `{"count":3}` {
		t.Fatalf("got %s: %v", raw, err)
	}
	if len(ids) != 3 || ids[0] == "" || ids[0] != ids[1] || ids[1] != ids[2] {
		t.Errorf("request ids of the attempts: %v", ids)
	}
}

// After a refusal the client does not try again. The client's error contains the whole problem that the server sent.
func TestClientRefusal(t *testing.T) {
	ca := authority(t, "test")
	var calls atomic.Int32
	address := apiServer(t, ca, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		refuseWith(w, model.CodeBudgetRate)
	})
	_, _, err := newClient(t, ca, 0, address, address).Do(t.Context(), http.MethodPost, "/v1/instances/x/evict", nil, nil)
	wantCode(t, err, model.CodeBudgetRate, "do nothing")
	var p *api.Problem
	if !errors.As(err, &p) || p.Index != 42 || p.Status != http.StatusConflict || !p.Retryable || calls.Load() != 1 {
		t.Errorf("got %+v after %d calls", p, calls.Load())
	}
}

// If a server accepts a request and then hangs, the client asks another server. If the request may be sent only once
// (reach.Request.Once), the call fails with an unknown outcome instead.
func TestClientLeavesAHangingServer(t *testing.T) {
	ca := authority(t, "test")
	hung := apiServer(t, ca, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	good := apiServer(t, ca, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })
	c := newClient(t, ca, -1, hung, good)
	if _, err := c.Send(t.Context(), reach.Request{Path: "/v1/nodes", Limit: 2 * time.Second}); err != nil {
		t.Fatal(err)
	}
	_, err := newClient(t, ca, -1, hung).
		Send(t.Context(),
			reach.Request{Method: http.MethodPost, Path: "/v1/agent/x", Content: "x", Once: true, Limit: 2 * time.Second})
	wantCode(t, err, model.CodeUnknownOutcome, "no answer within", "before you send it again")
}

// If the deadline of the caller's context passes, the call fails with the code timeout. If the caller cancels the
// context, it fails with context.Canceled.
func TestClientContext(t *testing.T) {
	ca := authority(t, "test")
	hung := apiServer(t, ca, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := newClient(t, ca, 0, hung)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := c.Send(ctx, reach.Request{Path: "/v1/nodes"})
	wantCode(t, err, model.CodeTimeout)
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, stop)
	if _, err := c.Send(ctx, reach.Request{Path: "/v1/nodes"}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// If the answer is not from an outspan server, the client's error says so.
func TestClientForeignServer(t *testing.T) {
	ca := authority(t, "test")
	address := apiServer(t, ca, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "hello", http.StatusTeapot) })
	_, _, err := newClient(t, ca, -1, address).Do(t.Context(), http.MethodGet, "/v1/nodes", nil, nil)
	wantCode(t, err, model.CodeInternal, "418", "outspan server")
}

func TestCBORIsStrict(t *testing.T) {
	var r transport.ReportRequest
	good := must(transport.EncodeCBOR(transport.ReportRequest{Node: "n", Epoch: 3}))(t)
	if err := transport.DecodeCBOR(good, &r); err != nil || r.Epoch != 3 {
		t.Fatalf("%+v: %v", r, err)
	}
	for name, bad := range map[string][]byte{
		"unknown field": {0xa1, 0x18, 0x63, 0x01}, "same key twice": {0xa2, 0x02, 0x01, 0x02, 0x02},
		"indefinite length": {0xbf, 0x02, 0x01, 0xff},
		"bytes behind":      append(append([]byte{}, good...), 0x00), "cut off": good[:len(good)-1], "nothing": {},
	} {
		if err := transport.DecodeCBOR(bad, &r); err == nil {
			t.Errorf("%s was taken", name)
		} else {
			wantCode(t, err, model.CodeInvalid)
		}
	}
}

// A server refuses an agent with a conflict if the agent follows another lineage than the server's. Then the client
// asks another server. If all servers refuse, the call fails.
func TestAgentAsksAnotherServerAfterAConflict(t *testing.T) {
	ca := authority(t, "test")
	var asked atomic.Int32
	old := agentServer(t, ca, func(context.Context, model.Subject, transport.AgentCall, []byte) ([]byte, error) {
		asked.Add(1)
		return nil, model.Refuse(model.CodeConflict, "another lineage")
	})
	present := agentServer(t, ca, func(context.Context, model.Subject, transport.AgentCall, []byte) ([]byte, error) {
		return transport.EncodeCBOR(transport.RegisterReply{Epoch: 7})
	})
	if reply, err := agentClient(t, ca, old.addr, present.addr).
		Register(t.Context(), transport.RegisterRequest{}); err != nil || reply.Epoch != 7 {
		t.Errorf("got %+v, %v", reply, err)
	}
	if asked.Load() != 1 {
		t.Errorf("the first server was asked %d times", asked.Load())
	}
	_, err := agentClient(t, ca, old.addr).Register(t.Context(), transport.RegisterRequest{})
	wantCode(t, err, model.CodeConflict)
}
