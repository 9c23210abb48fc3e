package httpapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
)

// Each role may use its own operations and no others.
func TestRoles(t *testing.T) {
	r := newRig(t)
	r.world()
	tests := []struct {
		role               pki.Role
		method, path, body string
		allowed            bool
	}{
		{pki.RoleCLI, "GET", "/v1/nodes", "", true},
		{pki.RoleCLI, "POST", "/v1/peer/tick", "", false},
		{pki.RoleAgent, "GET", "/v1/nodes", "", false},
		{pki.RoleAgent, "GET", "/v1/settings", "", false},
		{pki.RoleAgent, "GET", "/v1/events", "", false},
		{pki.RoleAgent, "GET", "/v1/snapshot", "", false},
		{pki.RoleAgent, "GET", "/metrics", "", false},
		{pki.RoleAgent, "GET", "/v1/instances/inst-a/logs", "", false},
		{pki.RoleAgent, "POST", "/v1/nodes/n1/cordon", "", false},
		{pki.RoleAgent, "POST", "/v1/members/transfer-leader", "", false},
		{pki.RoleAgent, "PUT", "/v1/settings", "", false},
		{pki.RoleAgent, "POST", "/v1/peer/tick", "", false},
		{pki.RoleAgent, "GET", "/v1/services", "", true},
		{pki.RoleAgent, "GET", "/healthz", "", true},
		{pki.RoleServer, "POST", "/v1/peer/tick", "", true},
		{pki.RoleServer, "GET", "/metrics", "", true},
		{pki.RoleServer, "POST", "/v1/nodes/n1/cordon", "", false},
		{pki.RoleServer, "DELETE", "/v1/members/s1", "", false},
		{pki.RoleServer, "GET", "/v1/snapshot", "", false},
	}
	for _, tt := range tests {
		_, p := raw(t, r, tt.role, "n1", tt.method, tt.path, "", tt.body)
		if refused := p != nil && p.Code == model.CodeForbidden; refused == tt.allowed {
			t.Errorf("%s %s %s: got %+v, want allowed=%v", tt.role, tt.method, tt.path, p, tt.allowed)
		}
	}
	for _, role := range []pki.Role{pki.RoleCLI, pki.RoleServer, pki.RoleAgent} {
		_, err := r.client(role, "n1").Services(t.Context(), transport.ServicesRequest{Node: "01N1"})
		if refused := errors.Is(err, &model.Error{Code: model.CodeForbidden}); refused == (role == pki.RoleAgent) {
			t.Errorf("the agents' protocol with a certificate of the role %s: %v", role, err)
		}
	}
}

// An agent acts for the node with its certificate's name, and for no other.
func TestAgentOfAnotherNode(t *testing.T) {
	r := newRig(t)
	r.world()
	thief := r.client(pki.RoleAgent, "n2")
	before := r.entries()
	_, err := thief.Register(t.Context(),
		transport.RegisterRequest{Node: "01N1", Name: "n1", Agent: model.AgentInfo{BootID: "b"}})
	wantCode(t, err, model.CodeForbidden)
	_, err = thief.Register(t.Context(),
		transport.RegisterRequest{Node: "01N1", Name: "n2", Agent: model.AgentInfo{BootID: "b", Address: "127.0.0.1"}})
	wantCode(t, err, model.CodeNodeTaken)
	_, err = thief.Report(t.Context(), transport.ReportRequest{Node: "01N1", Epoch: r.epoch("01N1"), Full: true})
	wantCode(t, err, model.CodeForbidden)
	_, err = thief.Assignments(t.Context(), transport.AssignmentsRequest{Node: "01N1", Epoch: r.epoch("01N1")})
	wantCode(t, err, model.CodeForbidden)
	_, err = thief.Services(t.Context(), transport.ServicesRequest{Node: "01N1"})
	wantCode(t, err, model.CodeForbidden)
	if r.entries() != before {
		t.Errorf("%d entries were written for a thief", r.entries()-before)
	}
	if r.heard["01N1"] != 0 {
		t.Error("a thief was taken for a sign of life")
	}
}

// An agent may drain its own node, as it does when it shuts down, but not with force, and not for a roll.
func TestAgentDrainsItself(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.client(pki.RoleAgent, "n1")
	_, _, err := c.Do(t.Context(), http.MethodPost, "/v1/nodes/n2/drain", nil, nil)
	wantCode(t, err, model.CodeForbidden)
	_, _, err = c.Do(t.Context(), http.MethodPost, "/v1/nodes/n1/drain", nil, map[string]bool{"force": true})
	wantCode(t, err, model.CodeForbidden)
	_, _, err = c.Do(t.Context(), http.MethodPost, "/v1/nodes/n1/drain", nil,
		map[string]any{"roll": map[string]any{"id": "r1", "nodes": []string{"n2"}, "exec": "true"}})
	wantCode(t, err, model.CodeForbidden)
	_, _, err = c.Do(t.Context(), http.MethodPost, "/v1/drains", nil, map[string][]string{"nodes": {"n1"}})
	wantCode(t, err, model.CodeForbidden)
	if got := post(t, c, "/v1/nodes/01N1/drain", map[string]string{"message": "shutdown"}); got["drain"] == "" ||
		r.lastEntry().Actor != "agent:n1" {
		t.Errorf("got %v, actor %q", got, r.lastEntry().Actor)
	}
}

// A follower forwards a request with the caller's identity. The leader accepts a forwarded identity only from servers.
func TestForward(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.world()
	follower := r.cli("s2")
	got := post(t, follower, "/v1/nodes/n1/cordon", nil)
	if e := r.lastEntry(); e.Actor != "cert:alice" || got["index"] == nil {
		t.Errorf("actor of a forwarded write is %q", e.Actor)
	}
	if got := get(t, follower, "/v1/nodes/n1")["state"]; got != "cordoned" {
		t.Errorf("read through a follower: state %v", got)
	}
	resp := must(follower.Open(t.Context(), reach.Request{Path: "/v1/nodes"}))(t)
	resp.Body.Close()
	if got := resp.Header.Get(api.HeaderStale); got != "0" {
		t.Errorf("a read that the leader answered: %s %q, want 0", api.HeaderStale, got)
	}
	_, _, err := follower.Do(t.Context(), http.MethodGet, "/v1/nodes/n9", nil, nil)
	wantCode(t, err, model.CodeNotFound)
	_, _, err = follower.Do(t.Context(), http.MethodPost, "/v1/jobs/web/scale", nil, map[string]string{"cuont": "3"})
	if wantCode(t, err, model.CodeInvalid); !strings.Contains(err.Error(), `did you mean "count"?`) {
		t.Errorf("a forwarded refusal lost its hint: %v", err)
	}
	reply, err := r.client(pki.RoleAgent, "n3", "s2").
		Register(t.Context(),
			transport.RegisterRequest{Node: "01N3", Name: "n3", Agent: model.AgentInfo{BootID: "b", Address: "127.0.0.1"}})
	if err != nil || reply.Epoch == 0 || r.lastEntry().Actor != "agent:n3" {
		t.Errorf("registration through a follower: %+v, %v, actor %q", reply, err, r.lastEntry().Actor)
	}

	for _, role := range []pki.Role{pki.RoleCLI, pki.RoleAgent} {
		c := r.client(role, "mallory")
		_, err := c.Send(t.Context(),
			reach.Request{Path: "/healthz", Header: http.Header{"Outspan-Forwarded-For": {"cert:root"}}})
		wantCode(t, err, model.CodeForbidden)
	}
}

// While an actor has as many stored requests as it may have, its further writes are refused. The refusals make no log
// entries, because callers try again and again.
func TestRequestsFull(t *testing.T) {
	r := newRig(t)
	r.world()
	r.fillRequests(100_000, "cert:alice")
	before := r.entries()
	_, _, err := r.cli().Do(t.Context(), http.MethodPost, "/v1/nodes/n1/cordon", values("request_id=one-more"), nil)
	wantCode(t, err, model.CodeBusy)
	if got := r.entries(); got != before {
		t.Errorf("%d entries for a refusal", got-before)
	}
}

// A request is forwarded only once. If it reaches a server that does not lead either, the caller gets no_leader.
func TestForwardOnce(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.world()
	c := r.client(pki.RoleServer, "s1", "s2")
	_, err := c.Send(t.Context(),
		reach.Request{Path: "/v1/nodes", Header: http.Header{"Outspan-Forwarded-For": {"cert:alice"}}})
	wantCode(t, err, model.CodeNoLeader)

	r.setLeader("")
	_, _, err = r.cli("s2").Do(t.Context(), http.MethodGet, "/v1/nodes", nil, nil)
	wantCode(t, err, model.CodeNoLeader)
	a, err := r.cli("s2").Send(t.Context(), reach.Request{Path: "/v1/nodes", Query: values("consistency=stale")})
	if err != nil || a.Stale == 0 {
		t.Errorf("a stale read without a leader: age %v, %v", a.Stale, err)
	}
}

// The actor of a request over the unix socket is the user that the kernel names and the server whose socket it is, even
// if that server forwards the request.
func TestSocketActor(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.world()
	path := t.TempDir() + "/api.sock"
	l := must(transport.ListenUnix(path, "s2"))(t)
	r.serveOn(l, r.servers["s2"].api, nil)
	c := must(transport.NewClient(transport.ClientConfig{Addresses: []string{"unix://" + path}}))(t)
	t.Cleanup(c.Close)
	post(t, c, "/v1/nodes/n1/cordon", nil)
	if actor, want := r.lastEntry().Actor, model.Actor(fmt.Sprintf("uid:%d@s2", os.Getuid())); actor != want {
		t.Errorf("actor of the socket is %q, want %q", actor, want)
	}
}

// A caller above its rate gets an error. Other callers are served.
func TestRate(t *testing.T) {
	r := newRig(t)
	r.world()
	r.servers["s1"].api.SetLimits(httpapi.Limits{RequestsPerSecond: 2})
	c := r.cli()
	var err error
	for range 20 {
		if _, _, err = c.Do(t.Context(), http.MethodGet, "/v1/nodes", nil, nil); err != nil {
			break
		}
	}
	wantCode(t, err, model.CodeRateLimited)
	if _, _, err := r.client(pki.RoleCLI, "bob").Do(t.Context(), http.MethodGet, "/v1/nodes", nil, nil); err != nil {
		t.Errorf("another caller: %v", err)
	}
}

// An agent's address must be an IP address, because other processes dial it, and jobs get it as text.
func TestAddressOfAnAgent(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.client(pki.RoleAgent, "n9")
	for _, address := range []string{"", "n9", "127.0.0.1:80", "127.0.0.1\nX: 1"} {
		_, err := c.Register(t.Context(),
			transport.RegisterRequest{Node: "01N9", Name: "n9", Agent: model.AgentInfo{BootID: "b1", Address: address}})
		wantCode(t, err, model.CodeInvalid)
	}
}
