package httpapi_test

import (
	"slices"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
)

// The reply to a registration has the listen addresses that servers report for themselves, and none that only gossip
// claims.
func TestRegistrationTellsListens(t *testing.T) {
	r := newRig(t)
	r.shape = func(m *httpapi.ServerEntry) {
		m.Address, m.Gossip, m.Listens = "10.0.0.9:8080", "10.0.0.9:8081", []string{m.Name + ":7640"}
	}
	r.twin = "claimed" // this server reports no listen addresses
	reply := must(r.client(pki.RoleAgent, "n1").Register(t.Context(), transport.RegisterRequest{
		Node: "01N1", Name: "n1", Agent: model.AgentInfo{BootID: "b1", Address: "127.0.0.1"},
	}))(t)
	if want := []string{"s1:7640"}; !slices.Equal(reply.Listens, want) || len(reply.Servers) != 2 {
		t.Errorf("listens %q, want %q; %d servers", reply.Listens, want, len(reply.Servers))
	}
}
