package fsm

import (
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// After a restore, a budget counts an instance as ready only once the agent of its node has reported its instances,
// because the instance may have stopped since the snapshot. An instance that is not reported yet may be stopped if
// enough others count as ready.
func TestBudgetBehindARestore(t *testing.T) {
	const api model.GroupID = "web/api"
	spec := model.JobSpec{Name: "web", Groups: []model.GroupSpec{{
		Name: "api", Count: 3, Exec: model.ExecSpec{Command: "/bin/api"}, Ports: []model.PortSpec{{Name: "http"}},
		Budget: &model.BudgetSpec{MinReady: &model.Amount{N: 1}},
	}}}
	s := leaseState(t, spec, 6*model.Second)
	for i, node := range []model.NodeID{"n2", "n3"} {
		id := model.InstanceID("i" + node[1:])
		s = run(t, s, 1000, register(node), &NodeReport{ID: node, Full: true}, placed(id, api, i+1, node, 20000),
			observed(node, id, model.ObservedReady))
	}
	stop := func(s State, id model.InstanceID) *model.Error {
		_, refusal := attempt(s, s.Now, &InstanceStop{ID: id, Cause: model.CauseUser})
		return refusal
	}
	allows := func(s State, want int) {
		t.Helper()
		if got := s.Ledgers(api)[0].Allowed(s.Now); got != want {
			t.Errorf("R20: the budget allows %d stops, want %d", got, want)
		}
	}
	allows(s, 2)

	s = run(t, s, 2000, &RestoreMark{}, &RestoreMark{Confirm: true})
	allows(s, 0)
	wantCode(t, "nobody has told, i1", stop(s, "i1"), model.CodeBudgetMinReady)
	here := func(id model.InstanceID) []model.InstanceStatus {
		return []model.InstanceStatus{{ID: id, Generation: 9, Observed: model.ObservedReady}}
	}
	s = inventory(t, s, "n1", here("i1"))
	allows(s, 0)
	refusal := stop(s, "i1")
	wantCode(t, "n1 has told, i1", refusal, model.CodeBudgetMinReady)
	if refusal != nil && !strings.Contains(refusal.Message, "2 of them on nodes whose agents have not told") {
		t.Errorf("it says %q", refusal.Message)
	}
	wantCode(t, "n1 has told, i2 of n2", stop(s, "i2"), "")
	s = inventory(t, s, "n2", here("i2"))
	allows(s, 1)
	wantCode(t, "n1 and n2 have told, i1", stop(s, "i1"), "")
	s = run(t, s, 2000, &InstanceStop{ID: "i1", Cause: model.CauseUser})
	wantCode(t, "i1 goes, i2", stop(s, "i2"), model.CodeBudgetMinReady)

	s = run(t, s, 20_000, offline(s, "n3"))
	if got := s.Ledgers(api)[0].Unheard; got != 0 {
		t.Errorf("%d instances count as unheard on a node that is offline", got)
	}
	if err := Check(s); err != nil {
		t.Error(err)
	}
}
