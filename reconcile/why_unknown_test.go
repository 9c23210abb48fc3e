package reconcile_test

import (
	"strings"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// For an instance that a restore has lost from the state, Why says where it runs, not that it doesn't exist.
func TestWhyUnknownInstance(t *testing.T) {
	w := newWorld(t)
	w.run("node n1")
	w.run("run web http")
	w.run("restored")
	n, _ := w.state.Nodes.Get("n1")
	if refusal := w.apply("agent:n1", &fsm.NodeReport{ID: n.ID, Epoch: n.Agent.Epoch, Full: true,
		Incarnation: w.state.Incarnation, Holds: []model.Holding{{ID: "lost1", Group: "web/http"}}}); refusal != nil {
		t.Fatal(refusal)
	}
	_, refusal := reconcile.Explain(w.input()).Why("lost1")
	if refusal == nil || !strings.Contains(refusal.Message, "runs on node n1") {
		t.Errorf("why says %v, want that it runs on node n1", refusal)
	}
}
