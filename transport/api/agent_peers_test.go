package api_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// The agents of a group are told all of its instances, and each change; of other groups nothing.
func TestAgentPeers(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.client(transport.RoleAgent, "n2")
	ask := func(index uint64) transport.PeersRequest {
		return transport.PeersRequest{
			Node: "01N2", Groups: []fsm.GroupID{"db/http", "web/http"}, Incarnation: r.machine.State().Incarnation, Index: index, Wait: 30 * fsm.Second,
		}
	}
	if got := must(c.Peers(t.Context(), ask(0)))(t); len(got.Groups) != 0 || got.Index == 0 {
		t.Errorf("a node without an instance of the group is told %d lists at %d", len(got.Groups), got.Index)
	}
	r.place("inst-c", 2, "01N2", fsm.ObservedPending)
	states := func(p transport.Peers) (list []string) {
		t.Helper()
		if len(p.Groups) != 1 {
			t.Fatalf("%d lists", len(p.Groups))
		}
		var g transport.GroupPeers
		if err := transport.DecodeCBOR(p.Groups[0], &g); err != nil || g.Group != "web/http" {
			t.Fatalf("%+v, %v", g, err)
		}
		for _, m := range g.Members {
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
	ctx, q := t.Context(), ask(first.Index)
	go func() {
		got, err := c.Peers(ctx, q)
		if err != nil {
			t.Errorf("peers: %v", err)
		}
		done <- got
	}()
	r.apply(&fsm.NodeLabel{ID: "01N1", Labels: map[string]string{"rack": "r9"}}) // concerns nobody's list
	n, _ := r.machine.State().Nodes.Get("01N1")
	r.apply(&fsm.NodeRegister{ID: "01N1", Name: "n1", Agent: fsm.AgentInfo{BootID: "b1", Address: "127.0.0.7", APIAddress: "127.0.0.7:1", Key: []byte("k")}, Shape: n.Shape})
	want[0], want[1] = "0 n1 127.0.0.7 20000 ready", "1 n1 127.0.0.7 20001 ready"
	if got := states(<-done); !slices.Equal(got, want) {
		t.Errorf("after a node moved %q, want %q", got, want)
	}
}
