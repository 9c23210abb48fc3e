package httpapi_test

import (
	"fmt"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// The count of a system group is the number of nodes that meet its constraints. Nothing is pending once each of these
// nodes has an instance.
func TestSystemGroupCountsNodesThatSuit(t *testing.T) {
	r := newRig(t)
	for _, n := range []string{"1", "2", "3"} {
		r.node(model.NodeID("01N"+n), "n"+n)
	}
	r.apply(&fsm.JobSubmit{Spec: model.JobSpec{Name: "sys", Groups: []model.GroupSpec{{
		Name: "g", Role: model.RoleSystem, Exec: model.ExecSpec{Command: "/x"},
		Constraints: []model.Constraint{{Attribute: "node.name", Operator: "=", Value: "n1"}},
	}}}})
	want := func(count, pending int64) {
		t.Helper()
		group := get(t, r.cli(), "/v1/jobs/sys")["groups"].([]any)[0].(map[string]any)
		if fmt.Sprintf("%v %v", group["count"], group["pending"]) != fmt.Sprintf("%d %d", count, pending) {
			t.Errorf("count %v, pending %v; want %v, %v", group["count"], group["pending"], count, pending)
		}
	}
	want(1, 1)
	r.apply(&fsm.InstancePlace{ID: "i1", Group: "sys/g", Version: 1, Node: "01N1", Cause: model.CauseScaleUp})
	want(1, 0)
}
