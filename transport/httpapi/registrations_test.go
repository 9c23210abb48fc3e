package httpapi_test

import (
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// The rate of one agent's registrations is limited, so that they can't fill the log. Other agents may register
// meanwhile.
func TestRegistrationsHaveARate(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.client(pki.RoleAgent, "n2")
	agent := model.AgentInfo{BootID: "b1", Address: "127.0.0.1"}
	before := r.entries()
	var err error
	for range 150 {
		if _, err = c.Register(t.Context(), transport.RegisterRequest{Node: "01N2", Name: "n2", Agent: agent}); err != nil {
			break
		}
	}
	wantCode(t, err, model.CodeRateLimited)
	if got := r.entries() - before; got > 25 {
		t.Errorf("%d registrations were written", got)
	}
	if _, err := r.client(pki.RoleAgent, "n1").
		Register(t.Context(), transport.RegisterRequest{Node: "01N1", Name: "n1", Agent: agent}); err != nil {
		t.Errorf("another agent: %v", err)
	}
}
