package fsm

import (
	"testing"

	"github.com/outspan/outspan/model"
)

// surgeStop tries to stop i1 as the given actor. The command is the one with which the leader completes an eviction
// that ann requested with surge. It returns the refusal, or nil.
func surgeStop(s State, actor model.Actor) *model.Error {
	_, results := s.Apply(s.Index+1, 1, Entry{
		Format: model.CurrentFormat, At: s.Now, Actor: actor,
		Groups: [][]Command{{&InstanceStop{ID: "i1", Cause: model.CauseUser, By: "ann"}}},
	})
	return results[0].Refusal
}

// For an eviction with surge, the leader stops the instance once a replacement is ready. The stop is refused if the
// replacement is not ready when the entry is applied, unless the group's order is stop_first or the instance itself has
// failed. A person may stop the instance without a replacement.
func TestSurgeOfAPersonCoversWhereItIsApplied(t *testing.T) {
	spec := webSpec()
	spec.Groups[0].Count = 2
	s := leaseState(t, spec, 6*model.Second)
	s = run(t, s, 1000, register("n2"), &NodeReport{ID: "n2", Full: true}, placed("i2", aloneGroup, 1, "n2", 20001),
		observed("n2", "i2", model.ObservedReady),
		&InstanceMark{ID: "i1", Requested: true, Surge: true, Cause: model.CauseUser, By: "ann"})
	wantCode(t, "without a replacement", surgeStop(s, model.ActorLeader), model.CodeReplacementPending)
	wantCode(t, "without a replacement, by a person", surgeStop(s, "cli:ann"), "")

	next := placed("i3", aloneGroup, 0, "n2", 20002)
	next.Replaces = "i1"
	s = run(t, s, s.Now, next)
	wantCode(t, "while the replacement is pending", surgeStop(s, model.ActorLeader), model.CodeReplacementPending)
	ready := run(t, s, s.Now, observed("n2", "i3", model.ObservedReady))
	wantCode(t, "with the replacement ready", surgeStop(ready, model.ActorLeader), "")

	failed := &NodeReport{ID: "n2",
		Instances: []model.InstanceStatus{{ID: "i3", Generation: 9, Observed: model.ObservedFailed}}}
	wantCode(t, "with the replacement failed meanwhile", surgeStop(run(t, ready, s.Now, failed), model.ActorLeader),
		model.CodeReplacementPending)

	spec.Groups[0].Eviction.Order = model.OrderStopFirst
	wantCode(t, "when the group stops first", surgeStop(run(t, s, s.Now, &JobSubmit{Spec: spec}), model.ActorLeader), "")
	down := &NodeReport{ID: "n1",
		Instances: []model.InstanceStatus{{ID: "i1", Generation: 9, Observed: model.ObservedFailed}}}
	wantCode(t, "when it has failed itself", surgeStop(run(t, s, s.Now, down), model.ActorLeader), "")
}

// The leader's stop for an eviction that a person requested is refused if, when it is applied, the person has withdrawn
// the eviction or the eviction has another cause. A person's own stop needs no eviction.
func TestStopForAPersonIsStillAskedFor(t *testing.T) {
	spec := webSpec()
	spec.Groups[0].Count = 2
	s := leaseState(t, spec, 6*model.Second)
	mark := func(c *InstanceMark) State {
		c.ID = "i1"
		return run(t, s, s.Now, c)
	}
	stop := &InstanceStop{ID: "i1", Cause: model.CauseUser, By: "ann", Bypass: true}
	asked := *stop
	asked.Asked = true
	for _, tt := range []struct {
		name string
		s    State
		stop *InstanceStop
		want model.Code
	}{
		{"an eviction", mark(&InstanceMark{Requested: true, Cause: model.CauseUser, By: "ann"}), &asked, ""},
		{"no eviction", s, &asked, model.CodeStale},
		{"one for another reason", mark(&InstanceMark{Requested: true, Cause: model.CauseScaleDown}),
			&asked, model.CodeStale},
		{"a stop by a person", s, stop, ""},
	} {
		_, refusal := attempt(tt.s, s.Now, tt.stop)
		wantCode(t, tt.name, refusal, tt.want)
	}
}

// The leader's stop for an eviction takes the grace and the message of the eviction that is requested when the stop is
// applied. After the leader's decision, the first eviction may have been withdrawn and a second one requested.
func TestStopForAPersonTakesTheGraceOfNow(t *testing.T) {
	spec := webSpec()
	spec.Groups[0].Count = 2
	s := leaseState(t, spec, 6*model.Second)
	atOnce := model.Duration(0)
	surge := &InstanceMark{ID: "i1", Requested: true, Surge: true, Cause: model.CauseUser, By: "ann", Grace: &atOnce}
	again := &InstanceMark{ID: "i1", Requested: true, Surge: true, Cause: model.CauseUser, By: "bob"}
	next := placed("i3", aloneGroup, 0, "n2", 20002)
	next.Replaces = "i1"
	s = run(t, s, 1000, register("n2"), &NodeReport{ID: "n2", Full: true}, surge, next,
		observed("n2", "i3", model.ObservedReady), &InstanceMark{ID: "i1"}, again)
	s, refusal := attempt(s, s.Now,
		&InstanceStop{ID: "i1", Cause: model.CauseUser, By: "ann", Grace: &atOnce, Asked: true})
	wantCode(t, "the stop decided for the first eviction", refusal, "")
	inst, _ := s.Instances.Get("i1")
	if want := s.graceOf(inst, nil); inst.Marks.GraceOverride != nil || inst.Marks.StopGrace != want {
		t.Errorf("it stops with a grace of %s (%v), want its group's, %s", inst.Marks.StopGrace, inst.Marks.GraceOverride,
			want)
	}
	if _, e, _ := s.Events.Max(); e.Data["reason"] != "bob" {
		t.Errorf("the last event names %q: %+v", e.Data["reason"], e)
	}
}

// The leader's InstancePrepare also takes the grace of the eviction that is requested when the command is applied.
func TestPreparationForAPersonTakesTheGraceOfNow(t *testing.T) {
	spec := webSpec()
	spec.Groups[0].Count = 2
	spec.Groups[0].Hooks = []model.HookSpec{{Name: model.HookBeforeStop, Exec: []string{"/bin/resign"},
		Timeout: 30 * model.Second}}
	s := leaseState(t, spec, 6*model.Second)
	atOnce := model.Duration(0)
	mark := &InstanceMark{ID: "i1", Requested: true, Surge: true, Cause: model.CauseUser, By: "ann"}
	next := placed("i3", aloneGroup, 0, "n2", 20002)
	next.Replaces = "i1"
	s = run(t, s, 1000, register("n2"), &NodeReport{ID: "n2", Full: true}, mark, next,
		observed("n2", "i3", model.ObservedReady))
	s, refusal := attempt(s, s.Now,
		&InstancePrepare{ID: "i1", Cause: model.CauseUser, By: "ann", Grace: &atOnce, Asked: true})
	wantCode(t, "the preparation decided for an eviction with a grace of 0s", refusal, "")
	if inst, _ := s.Instances.Get("i1"); !inst.Eviction.Preparing || inst.Marks.GraceOverride != nil {
		t.Errorf("it is prepared as %+v with a grace of %v, want its group's", inst.Eviction, inst.Marks.GraceOverride)
	}
}

// A second request to evict an instance with surge adds its avoid and its grace to the first request. The author and
// the time of the first request stay.
func TestSurgeRequestedAgainAddsWhatItAsks(t *testing.T) {
	spec := webSpec()
	spec.Groups[0].Count = 2
	s := leaseState(t, spec, 6*model.Second)
	grace := 3 * model.Second
	s = run(t, s, 1000, &InstanceMark{ID: "i1", Requested: true, Surge: true, Cause: model.CauseUser, By: "ann"})
	events := s.Events.Len()
	s = run(t, s, 2000, &InstanceMark{ID: "i1", Requested: true, Surge: true, Cause: model.CauseUser, By: "bob",
		Avoid: true, Grace: &grace})
	inst, _ := s.Instances.Get("i1")
	if _, avoids := s.AvoidedOnRequest(inst, s.Now); !avoids {
		t.Error("the group does not avoid the node")
	}
	if g := inst.Marks.GraceOverride; g == nil || *g != grace {
		t.Errorf("the grace is %v, want %s", g, grace)
	}
	if inst.Eviction.By != "ann" || inst.Eviction.Since != 1000 || s.Events.Len() != events {
		t.Errorf("the eviction itself changed: %+v", inst.Eviction)
	}
}

// If a person withdraws an eviction, its grace is dropped too. The next stop has the grace of the group.
func TestGraceEndsWithItsEviction(t *testing.T) {
	spec := webSpec()
	spec.Groups[0].Count = 2
	spec.Groups[0].Hooks = []model.HookSpec{{Name: model.HookBeforeStop, Exec: []string{"/bin/resign"},
		Timeout: 30 * model.Second}}
	s := leaseState(t, spec, 6*model.Second)
	atOnce := model.Duration(0)
	s = run(t, s, 1000, register("n2"), &NodeReport{ID: "n2", Full: true}, placed("i2", aloneGroup, 1, "n2", 20001),
		observed("n2", "i2", model.ObservedReady),
		&InstanceStop{ID: "i1", Cause: model.CauseUser, By: "ann", Grace: &atOnce, Avoid: true})
	inst, _ := s.Instances.Get("i1")
	if !inst.Eviction.Preparing || inst.Marks.GraceOverride == nil {
		t.Fatalf("the hook does not run before a stop with a grace: %+v", inst)
	}
	s = run(t, s, 2000, &InstanceMark{ID: "i1", Avoid: true})
	if inst, _ = s.Instances.Get("i1"); inst.Eviction.Requested || inst.Marks.GraceOverride != nil {
		t.Errorf("taken back, it has the eviction %+v and the grace %v", inst.Eviction, inst.Marks.GraceOverride)
	}
}
