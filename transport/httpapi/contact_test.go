package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
)

// cutOff says whether the server has been without a leader for too long.
func (r *rig) cutOff(name string, off bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.servers[name].stale = 10 * time.Second; off {
		r.servers[name].stale++
	}
}

// A server of a managed cluster that has not been up to date with a leader for more than 10 s answers no person and no
// write of an agent over TCP. Servers, the unix socket, health and metrics are answered.
func TestServerWithoutContact(t *testing.T) {
	r := newRig(t)
	r.world()
	s2 := r.startWith("s2", func(c *httpapi.Config) { c.Managed = true })
	path := t.TempDir() + "/api.sock"
	r.serveOn(must(transport.ListenUnix(path, "s2"))(t), s2.api, nil)
	socket := must(transport.NewClient(transport.ClientConfig{Addresses: []string{"unix://" + path}}))(t)
	t.Cleanup(socket.Close)
	person, agent, peer := r.cli("s2"), r.client(pki.RoleAgent, "n1", "s2"), r.client(pki.RoleServer, "s1", "s2")

	stale := reach.Request{Path: "/v1/nodes", Query: values("consistency=stale")}
	forPerson := stale
	forPerson.Header = http.Header{"Outspan-Forwarded-For": {"cert:alice"}}
	tests := []struct {
		what    string
		from    *transport.Client
		request reach.Request
		refused bool
	}{
		{"a stale read", person, stale, true},
		{"a read that the leader would answer", person, reach.Request{Path: "/v1/nodes"}, true},
		{"a read of this server", person, reach.Request{Path: "/v1/unknown-instances"}, true},
		{"a stream", person, reach.Request{Path: "/v1/events", Query: values("follow=false")}, true},
		{"a write", person, reach.Request{Method: http.MethodPost, Path: "/v1/nodes/n1/cordon"}, true},
		{"an agent's write", agent, reach.Request{Method: http.MethodPost, Path: "/v1/nodes/n1/drain"}, true},
		{"an agent's read", agent, reach.Request{Path: "/v1/services", Query: values("consistency=stale")}, false},
		{"health", person, reach.Request{Path: "/healthz"}, false},
		{"readiness", person, reach.Request{Path: "/readyz"}, false},
		{"a server", peer, reach.Request{Method: http.MethodPost, Path: "/v1/peer/tick"}, false},
		{"a server for a person", peer, forPerson, false},
		{"the socket", socket, stale, false},
		{"the socket, through the leader", socket, reach.Request{Path: "/v1/nodes"}, false},
	}
	r.cutOff("s2", true)
	before := r.entries()
	for _, tt := range tests {
		_, err := tt.from.Send(t.Context(), tt.request)
		if !tt.refused {
			if err != nil {
				t.Errorf("%s: %v", tt.what, err)
			}
			continue
		}
		if wantCode(t, err, model.CodeNoLeader); err == nil || !strings.Contains(err.Error(), "unix socket") {
			t.Errorf("%s: %v, want a hint at the socket", tt.what, err)
		}
	}
	if got := r.entries() - before; got != 0 {
		t.Errorf("%d entries were written", got)
	}
	must(person.Open(t.Context(), reach.Request{Path: "/metrics"}))(t).Body.Close()

	r.cutOff("s2", false) // exactly the limit
	if _, err := person.Send(t.Context(), stale); err != nil {
		t.Errorf("within the limit: %v", err)
	}
	r.start("s3", httpapi.Limits{})
	r.cutOff("s3", true)
	if _, err := r.cli("s3").Send(t.Context(), stale); err != nil {
		t.Errorf("without managed certificates: %v", err)
	}
}

// A stream of a person ends once its server has lost contact.
func TestStreamWithoutContact(t *testing.T) {
	r := newRig(t)
	r.world()
	r.startWith("s2", func(c *httpapi.Config) { c.Managed = true })
	resp := must(r.cli("s2").Open(t.Context(), reach.Request{Path: "/v1/events"}))(t)
	defer resp.Body.Close()
	r.cutOff("s2", true)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, resp.Body) // any end counts
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the stream goes on")
	}
}
