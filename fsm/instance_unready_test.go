package fsm

import (
	"testing"

	"github.com/outspan/outspan/model"
)

// An instance may be stopped for being unready only after its group's toleration is over. If the group's order is
// surge, the instance's replacement must be ready too.
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

// unreadyLong returns true once an instance has been unready for longer than its group tolerates, so that budgets no
// longer protect it. It also returns true if the group's spec has no toleration, as in specs of older programs.
func TestUnreadyLong(t *testing.T) {
	state := leaseState(t, webSpec(), 6*model.Second)
	state = run(t, state, 2000, observedAt("n1", "i1", model.ObservedUnready, 2))
	s := state.fork()
	i1, _ := s.Instances.Get("i1")
	spec, _ := s.Spec(aloneGroup, 1)
	end := i1.Marks.UnreadySince.Add(*spec.Toleration.NotReady)
	for at, want := range map[model.Time]bool{end - 1: false, end: false, end + 1: true} {
		s.Now = at
		if got := s.unreadyLong(i1); got != want {
			t.Errorf("at %d, with the end at %d: unready for long %v", at, end, got)
		}
	}
	v, _ := s.JobVersion("web", 1)
	old := *v
	old.Spec.Groups = append([]model.GroupSpec(nil), v.Spec.Groups...)
	old.Spec.Groups[0].Toleration.NotReady = nil
	s.putVersion(&old)
	s.Now = end - 1
	if !s.unreadyLong(i1) {
		t.Error("without a toleration, it is protected")
	}
	if s.unreadyLong(&Instance{ID: "x", Group: "web/gone"}) {
		t.Error("an instance of an unknown group is not protected")
	}
}
