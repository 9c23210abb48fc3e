package httpapi_test

import (
	"slices"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
)

// The reply to a registration has the servers, without the one that only gossip claims, and the listen addresses
// that servers report for themselves.
func TestRegistrationTellsListens(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.shape = func(m *httpapi.ServerEntry) {
		m.Claimed = m.Name == "s2"
		m.Address, m.Gossip, m.Listens = "10.0.0.9:8080", "10.0.0.9:8081", []string{m.Name + ":7640"}
	}
	r.twin = "twin" // this server is a member that reports no listen addresses
	reply := must(r.client(pki.RoleAgent, "n1").Register(t.Context(), transport.RegisterRequest{
		Node: "01N1", Name: "n1", Agent: model.AgentInfo{BootID: "b1", Address: "127.0.0.1"},
	}))(t)
	if want := []string{"s1:7640", "s2:7640"}; !slices.Equal(reply.Listens, want) {
		t.Errorf("listens %q, want %q", reply.Listens, want)
	}
	var names []string
	for _, one := range reply.Servers {
		names = append(names, one.Name)
	}
	if want := []string{"s1", "twin"}; !slices.Equal(names, want) {
		t.Errorf("the agent is told of %q, want %q", names, want)
	}
}
