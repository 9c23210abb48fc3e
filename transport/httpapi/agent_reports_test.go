package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// An agent that got no answer to a report sends it again. If the state already has the report's content, the report
// makes no second entry, but is still a sign of life.
func TestRepeatedReportsWriteNothing(t *testing.T) {
	r := newRig(t)
	r.world()
	r.place("inst-c", 2, "01N2", model.ObservedPending)
	c := r.client(pki.RoleAgent, "n2")
	status := model.InstanceStatus{ID: "inst-c", Generation: 7, Observed: model.ObservedBooting}
	for _, full := range []bool{true, false} {
		status.Generation++
		said := transport.ReportRequest{Node: "01N2", Epoch: r.epoch("01N2"), Full: full, FactsGen: status.Generation,
			Instances: []model.InstanceStatus{status}}
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
		"a newer status": {
			Instances: []model.InstanceStatus{{ID: "inst-c", Generation: 20, Observed: model.ObservedReady}}},
		"newer facts":      {FactsGen: 99},
		"nothing is there": {Full: true},
	} {
		news.Node, news.Epoch = "01N2", r.epoch("01N2")
		before := r.machine.State().Index
		if got := must(c.Report(t.Context(), news))(t); got.Index != before+1 {
			t.Errorf("%s: at %d after %d", what, got.Index, before)
		}
	}
}

// Instances and transfers in a report that are not on the agent's node are not written to the log. A reason that is too
// long is cut. The report is still a sign of life.
func TestReportsOfStrangersWriteNothing(t *testing.T) {
	r := newRig(t)
	r.world()
	r.place("inst-c", 2, "01N2", model.ObservedReady)
	c := r.client(pki.RoleAgent, "n2")
	said := transport.ReportRequest{Node: "01N2", Epoch: r.epoch("01N2"),
		Transfers: []model.TransferReport{{ID: "t", State: model.SideDropped}}}
	for i := range 3000 {
		said.Instances = append(said.Instances,
			model.InstanceStatus{ID: model.InstanceID(fmt.Sprint("x", i)), Generation: 1, Observed: model.ObservedStopped,
				Reason: strings.Repeat("x", 200)})
	}
	before, heard := r.entries(), r.signs("01N2")
	must(c.Report(t.Context(), said))(t)
	if now := r.entries(); now != before {
		t.Errorf("%d entries were written for what is not on the node", now-before)
	}
	if r.signs("01N2") != heard+1 {
		t.Error("it was no sign of life")
	}
	said.Instances = append(said.Instances,
		model.InstanceStatus{ID: "inst-c", Generation: 9, Observed: model.ObservedUnready, Reason: strings.Repeat("x", 1000)})
	must(c.Report(t.Context(), said))(t)
	written, ok := r.lastEntry().Groups[0][0].(*fsm.NodeReport)
	if !ok || r.entries() != before+1 {
		t.Fatalf("%d entries were written, the last is a %T", r.entries()-before, r.lastEntry().Groups[0][0])
	}
	if len(written.Instances) != 1 || len(written.Transfers) != 0 || len(written.Instances[0].Reason) > 256 {
		t.Errorf("%d instances and %d transfers were written, a reason of %d bytes", len(written.Instances),
			len(written.Transfers), len(written.Instances[0].Reason))
	}
}

// A report may name an instance whose placement the leader has not applied yet. The leader applies the placement first,
// and accepts the report.
func TestReportAheadOfTheLeader(t *testing.T) {
	r := newRig(t)
	r.world()
	// Another server has already applied this placement.
	r.beforeReads(func() { r.place("inst-c", 2, "01N2", model.ObservedPending) })
	said := transport.ReportRequest{Node: "01N2", Epoch: r.epoch("01N2"),
		Instances: []model.InstanceStatus{{ID: "inst-c", Generation: 1, Observed: model.ObservedReady}}}
	must(r.client(pki.RoleAgent, "n2").Report(t.Context(), said))(t)
	if inst, ok := r.machine.State().Instances.Get("inst-c"); !ok || inst.Status.Observed != model.ObservedReady {
		t.Errorf("the state has %+v", inst)
	}
}

// The rate of one agent's reports is limited, so that the leader need not decode and log too many. Reports of other
// agents are accepted meanwhile.
func TestReportsHaveARate(t *testing.T) {
	r := newRig(t)
	r.world()
	said := transport.ReportRequest{Node: "01N2", Epoch: r.epoch("01N2"), Cluster: ""}
	for i := range 5000 {
		said.Instances = append(said.Instances,
			model.InstanceStatus{ID: model.InstanceID(fmt.Sprint("x", i)), Generation: 1, Observed: model.ObservedReady,
				Reason: strings.Repeat("x", 150)})
	}
	c := r.client(pki.RoleAgent, "n2")
	var err error
	taken := 0
	for ; taken < 100 && err == nil; taken++ {
		_, err = c.Report(t.Context(), said)
	}
	wantCode(t, err, model.CodeRateLimited)
	if taken < 5 {
		t.Errorf("only %d large reports were taken", taken)
	}
	if _, err := r.client(pki.RoleAgent, "n1").
		Report(t.Context(), transport.ReportRequest{Node: "01N1", Epoch: r.epoch("01N1")}); err != nil {
		t.Errorf("another agent: %v", err)
	}
}

// A report with more items than any real agent has is refused.
func TestReportOfTooMuch(t *testing.T) {
	r := newRig(t)
	r.world()
	said := transport.ReportRequest{Node: "01N2", Epoch: r.epoch("01N2"),
		Instances: make([]model.InstanceStatus, fsm.MaxReportItems+1)}
	_, err := r.client(pki.RoleAgent, "n2").Report(t.Context(), said)
	wantCode(t, err, model.CodeTooLarge)
}

// Inventories that an agent sends too often are refused, because an inventory may make other agents ask again for what
// they must run.
func TestInventoriesHaveARate(t *testing.T) {
	r := newRig(t)
	r.world()
	c := r.client(pki.RoleAgent, "n2")
	before := r.entries()
	var err error
	for i := 0; i < 200 && err == nil; i++ {
		said := transport.ReportRequest{Node: "01N2", Epoch: r.epoch("01N2"), Full: true,
			Incarnation: r.machine.State().Incarnation}
		said.Holds = []model.Holding{{ID: model.InstanceID(fmt.Sprint("x", i))}}
		_, err = c.Report(t.Context(), said)
	}
	wantCode(t, err, model.CodeRateLimited)
	if got := r.entries() - before; got < 5 || got > 60 {
		t.Errorf("%d inventories were written", got)
	}
}
