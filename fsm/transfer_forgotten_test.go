package fsm

import (
	"testing"

	"github.com/outspan/outspan/model"
)

// TestTransfersOfAForgottenNode: a transfer fails if it needs the forgotten node. A migration no longer needs its
// source once the target's copy is in use. Finished transfers no longer list the copies that they left on the forgotten
// node.
func TestTransfersOfAForgottenNode(t *testing.T) {
	tests := []struct {
		name     string
		from, to model.NodeID
		phase    model.TransferPhase
		fails    bool
	}{
		{"its target", "n1", "n2", model.TransferAttaching, true},
		{"its source, before the copy is in use", "n2", "n1", model.TransferCopying, true},
		{"its source, when the copy is in use", "n2", "n1", model.TransferAttaching, false},
		{"another node", "n1", "n3", model.TransferCopying, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			state := busyState(t)
			s := state.fork()
			s.Transfers.put("t1", &Transfer{
				ID: "t1", Kind: model.TransferMigrate, Group: "web/store", Names: []string{"data"},
				From: tt.from, To: tt.to, Phase: tt.phase,
			})
			s.Transfers.put("t2", &Transfer{
				ID: "t2", Kind: model.TransferMigrate, Group: "web/store", Names: []string{"data"}, From: "n2", To: "n1",
				Phase: model.TransferSucceeded, Left: TransferLeft{Old: "n2", Until: 9, Detached: "n2"},
			})
			s.Transfers.put("t3", &Transfer{
				ID: "t3", Kind: model.TransferMigrate, Group: "web/store", Names: []string{"data"}, From: "n3", To: "n1",
				Phase: model.TransferSucceeded, Left: TransferLeft{Old: "n3", Until: 9},
			})
			s.endTransfersOf("n2", "two")
			t1, _ := s.Transfers.Get("t1")
			if failed := t1.Phase == model.TransferFailed; failed != tt.fails || !failed && t1.Phase != tt.phase {
				t.Errorf("it is %s, fails %v wanted", t1.Phase, tt.fails)
			}
			if t2, _ := s.Transfers.Get("t2"); t2.Left != (TransferLeft{}) {
				t.Errorf("left on a node that is gone: %+v", t2.Left)
			}
			if t3, _ := s.Transfers.Get("t3"); t3.Left != (TransferLeft{Old: "n3", Until: 9}) {
				t.Errorf("left on another node: %+v", t3.Left)
			}
		})
	}
}
