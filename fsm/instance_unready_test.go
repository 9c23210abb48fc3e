package fsm

import (
	"testing"

	"github.com/outspan/outspan/model"
)

// An instance that stays unready may be stopped for that only after its group's toleration. With surge, its replacement
// must be ready too.
func TestStopOfAnUnreadyInstance(t *testing.T) {
	spec := webSpec()
	spec.Groups[0].Count = 1
	s := leaseState(t, spec, 6*model.Second)
	s = run(t, s, 1000, register("n2"), &NodeReport{ID: "n2", Full: true})
	stop := &InstanceStop{ID: "i1", Cause: model.CauseCheckFailed, By: "not ready"}
	want := func(what string, s State, at model.Time, code model.Code) {
		t.Helper()
		_, refusal := attempt(s, at, stop)
		wantCode(t, what, refusal, code)
	}
	want("ready", s, 2000, model.CodeStale)
	s = run(t, s, 2000, observedAt("n1", "i1", model.ObservedUnready, 2))
	want("not ready for a moment", s, 3000, model.CodeStale)
	later := model.Time(2000).Add(model.Minute)
	want("not ready for long, alone", s, later, model.CodeReplacementPending)
	next := placed("i2", aloneGroup, 0, "n2", 20001)
	next.Replaces, next.Cause = "i1", model.CauseCheckFailed
	s = run(t, s, later, next)
	want("its replacement starts", s, later, model.CodeReplacementPending)
	s = run(t, s, later, observed("n2", "i2", model.ObservedReady))
	want("its replacement is ready", s, later, "")
}
