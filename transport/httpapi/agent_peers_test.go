package httpapi_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// For each group with an instance on its node, an agent gets the list of all instances of the group, and a new list
// after each change. The agent gets no lists of other groups.
func TestAgentPeers(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.client(pki.RoleAgent, "n2")
	ask := func(at uint64) transport.PeersRequest {
		return transport.PeersRequest{
			Node: "01N2", Groups: []transport.PeersKnown{{Group: "db/http"}, {Group: "web/http", At: at}},
			Incarnation: r.machine.State().Incarnation, Wait: 30 * model.Second,
		}
	}
	none := ask(0)
	none.Wait = 0
	if got := must(c.Peers(t.Context(), none))(t); len(got.Lists) != 0 {
		t.Errorf("a node without an instance of the group is told %d lists", len(got.Lists))
	}
	r.place("inst-c", 2, "01N2", model.ObservedPending)
	var last transport.GroupPeers
	states := func(p transport.Peers) (list []string) {
		t.Helper()
		if len(p.Lists) != 1 {
			t.Fatalf("%d lists", len(p.Lists))
		}
		last = transport.GroupPeers{}
		if err := transport.DecodeCBOR(p.Lists[0], &last); err != nil || last.Group != "web/http" {
			t.Fatalf("%+v, %v", last, err)
		}
		for _, m := range last.Members {
			list = append(list, fmt.Sprintf("%d %s %s %d %s", m.Slot, m.Node, m.Address, m.Ports["http"], m.State))
		}
		return list
	}
	first := must(c.Peers(t.Context(), ask(0)))(t)
	want := []string{"0 n1 127.0.0.1 20000 ready", "1 n1 127.0.0.1 20001 ready", "2 n2 127.0.0.1 20002 starting"}
	if got := states(first); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	done := make(chan transport.Peers, 1)
	ctx, q := t.Context(), ask(last.At)
	go func() {
		got, err := c.Peers(ctx, q)
		if err != nil {
			t.Errorf("peers: %v", err)
		}
		done <- got
	}()
	r.apply(&fsm.NodeLabel{ID: "01N1", Labels: map[string]string{"rack": "r9"}}) // changes no list
	n, _ := r.machine.State().Nodes.Get("01N1")
	r.apply(&fsm.NodeRegister{ID: "01N1", Name: "n1",
		Agent: model.AgentInfo{BootID: "b1", Address: "127.0.0.7", APIAddress: "127.0.0.7:1", Key: []byte("k")},
		Shape: n.Shape})
	want[0], want[1] = "0 n1 127.0.0.7 20000 ready", "1 n1 127.0.0.7 20001 ready"
	if got := states(<-done); !slices.Equal(got, want) {
		t.Errorf("after a node moved %q, want %q", got, want)
	}
	// A server that has not applied a restore yet sends nothing to an agent that has seen the restored state. A server
	// that has applied the restore sends all lists again.
	later := ask(0)
	later.Incarnation, later.Wait = later.Incarnation+1, 0
	if got := must(c.Peers(t.Context(), later))(t); len(got.Lists) != 0 {
		t.Errorf("an older state tells %d lists", len(got.Lists))
	}
	r.apply(&fsm.RestoreMark{})
	restored := ask(last.At)
	restored.Incarnation = q.Incarnation
	if got := states(must(c.Peers(t.Context(), restored))(t)); !slices.Equal(got, want) {
		t.Errorf("after a restore %q, want %q", got, want)
	}
}
