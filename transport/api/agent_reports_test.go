package api_test

import (
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// An agent that got no answer to a report sends it again. What the state holds already is no second entry; it is a sign of life all the same.
func TestRepeatedReportsWriteNothing(t *testing.T) {
	r := newRig(t)
	r.world()
	r.place("inst-c", 2, "01N2", fsm.ObservedPending)
	c := r.client(transport.RoleAgent, "n2")
	status := fsm.InstanceStatus{ID: "inst-c", Generation: 7, Observed: fsm.ObservedBooting}
	for _, full := range []bool{true, false} {
		status.Generation++
		said := transport.ReportRequest{Node: "01N2", Epoch: r.epoch("01N2"), Full: full, FactsGen: status.Generation, Instances: []fsm.InstanceStatus{status}}
		before, heard := r.machine.State().Index, r.signs("01N2")
		first := must(c.Report(t.Context(), said))(t)
		if first.Index != before+1 {
			t.Errorf("full %v: the first report is entry %d, after %d", full, first.Index, before)
		}
		for range 3 {
			if again := must(c.Report(t.Context(), said))(t); again.Index != first.Index {
				t.Errorf("full %v: a repeated report was written at %d", full, again.Index)
			}
		}
		if now := r.signs("01N2"); now != heard+4 {
			t.Errorf("full %v: %d signs of life of 4 reports", full, now-heard)
		}
	}
	for what, news := range map[string]transport.ReportRequest{
		"a newer status":      {Instances: []fsm.InstanceStatus{{ID: "inst-c", Generation: 20, Observed: fsm.ObservedReady}}},
		"newer facts":         {FactsGen: 99},
		"an unknown instance": {Instances: []fsm.InstanceStatus{{ID: "inst-x", Generation: 1, Observed: fsm.ObservedReady}}},
		"nothing is there":    {Full: true},
	} {
		news.Node, news.Epoch = "01N2", r.epoch("01N2")
		before := r.machine.State().Index
		if got := must(c.Report(t.Context(), news))(t); got.Index != before+1 {
			t.Errorf("%s: at %d after %d", what, got.Index, before)
		}
	}
}
