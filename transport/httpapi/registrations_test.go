package httpapi_test

import (
	"slices"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
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

// Two machines with one identity are noticed: if a second one is refused while the first one is heard, and if two take
// turns. A machine that was started again is not.
func TestTwoMachinesWithOneIdentity(t *testing.T) {
	r := newRig(t, "s2", "s3")
	copies := transport.NewCopies()
	s := r.startWith("s1", func(c *httpapi.Config) { c.Copies = copies })
	r.setLeader(s.name)
	register := func(node, name, boot, address string) error {
		_, err := r.client(pki.RoleAgent, name).Register(t.Context(), transport.RegisterRequest{Node: model.NodeID(node),
			Name: name, Agent: model.AgentInfo{BootID: boot, Address: address}})
		return err
	}
	for _, boot := range []string{"b1", "b2", "b2"} {
		if err := register("01N2", "n2", boot, "127.0.0.1"); err != nil {
			t.Fatal(err)
		}
	}
	if got := copies.Found(); len(got) > 0 {
		t.Fatalf("after a reboot: %+v", got)
	}
	if err := register("01N2", "n2", "b1", "127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	want := transport.Copy{Node: "n2", First: "127.0.0.1 (boot id b1)", Second: "127.0.0.1 (boot id b2)"}
	if got := copies.Found(); len(got) != 1 || got[0] != want {
		t.Errorf("after the boot id came back: %+v", got)
	}
	if err := register("01N1", "n1", "b3", "127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	want = transport.Copy{Node: "n1", First: "127.0.0.1", Second: "127.0.0.9"}
	for deadline := time.Now().Add(time.Minute); !slices.Contains(copies.Found(), want); {
		wantCode(t, register("01N1", "n1", "b3", "127.0.0.9"), model.CodeNodeTaken)
		if time.Now().After(deadline) {
			t.Fatalf("after a minute of refusals: %+v", copies.Found())
		}
		time.Sleep(100 * time.Millisecond)
	}
}
