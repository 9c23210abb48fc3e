package fsm

import (
	"testing"

	"github.com/outspan/outspan/model"
)

// TestCanceledDrain: after a drain is canceled, its node stays draining until the node is uncordoned. The drain does
// not count instances that are stopped for it after the cancellation.
func TestCanceledDrain(t *testing.T) {
	m := NewMachine()
	mustApply(t, m, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()})
	mustApply(t, m, register("n1"), register("n2"))
	mustApply(t, m, &NodeReport{ID: "n1", Full: true}, &NodeReport{ID: "n2", Full: true})
	mustApply(t, m, &JobSubmit{Spec: webSpec()})
	mustApply(t, m, placed("i1", "web/api", 0, "n1", 20000), placed("i2", "web/api", 1, "n1", 20001))
	mustApply(t, m, observed("n1", "i1", model.ObservedFailed), observed("n1", "i2", model.ObservedFailed))
	mustApply(t, m, &DrainStart{ID: "d1", Nodes: []string{"n1"}, Options: model.DrainOptions{Deadline: model.Hour}})
	mustApply(t, m, &InstanceStop{ID: "i1", Cause: model.CauseNodeDraining, By: "d1"})
	mustApply(t, m, &DrainCancel{ID: "d1"})
	mustApply(t, m, &InstanceStop{ID: "i2", Cause: model.CauseNodeDraining, By: "d1"})
	s := m.State()
	d, _ := s.Drains.Get("d1")
	if part := d.Nodes[0]; part.Phase != model.PhaseCanceled || part.Moved != 1 {
		t.Errorf("the part is %s with %d moved, want canceled with the 1 that stopped before", part.Phase, part.Moved)
	}
	n, _ := s.Nodes.Get("n1")
	if n.Intent != model.IntentDraining {
		t.Errorf("the node is %s, want draining until it is uncordoned", n.Intent)
	}
	mustApply(t, m, &NodeIntent{ID: "n1", Intent: model.IntentActive})
	s = m.State()
	if n, _ = s.Nodes.Get("n1"); n.Intent != model.IntentActive {
		t.Errorf("after uncordon the node is %s", n.Intent)
	}
}
