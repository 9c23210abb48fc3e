package fsm

import (
	"testing"

	"github.com/outspan/outspan/model"
)

// Commands that a hold forbids are refused when they are applied, because the leader may have decided them just before
// the hold was set (S12).
func TestHoldIsKeptAtApply(t *testing.T) {
	set, end := &HoldSet{Active: true, Reason: "by hand"}, &HoldSet{}

	s := aloneState(t)
	late := offline(s, "n1")
	held := run(t, s, 20_000, set)
	_, refusal := attempt(held, 20_000, late)
	wantCode(t, "S12: a node is declared offline", refusal, model.CodeHold)
	_, refusal = attempt(run(t, held, 20_000, end), 20_000, late)
	wantCode(t, "the hold has ended, a node is declared offline", refusal, "")

	s = leaseState(t, fencedSpec(), 6*model.Second)
	s = run(t, s, 10_000, offline(s, "n1"))
	lost, _ := s.Instances.Get("i1")
	over := s.LeaseEnd(lost)
	_, refusal = attempt(run(t, s, over, set), over, &InstanceFenced{ID: "i1"})
	wantCode(t, "S12: the lease of a lost instance is over", refusal, model.CodeHold)
	_, refusal = attempt(s, over, &InstanceFenced{ID: "i1"})
	wantCode(t, "without a hold, the lease of a lost instance is over", refusal, "")

	m := gateWorld(t, "", 2)
	mustApply(t, m, offline(m.State(), "n0"))
	again := &InstancePlace{ID: "next", Group: "db/main", Slot: 0, Version: 1, Node: "n1", Replaces: "i0",
		Cause: model.CauseNodeOffline}
	free := m.State()
	_, refusal = attempt(free, free.Now, again)
	wantCode(t, "without a hold, a lost instance is replaced", refusal, "")
	mustApply(t, m, set)
	_, refusal = attempt(m.State(), free.Now, again)
	wantCode(t, "S12: a lost instance is replaced", refusal, model.CodeHold)

	unready := leaseState(t, webSpec(), 6*model.Second)
	unready = run(t, unready, 1000, register("n2"), &NodeReport{ID: "n2", Full: true},
		observedAt("n1", "i1", model.ObservedUnready, 2))
	instead := placed("i2", aloneGroup, 0, "n2", 20001)
	instead.Replaces, instead.Cause = "i1", model.CauseCheckFailed
	_, refusal = attempt(unready, 100_000, instead)
	wantCode(t, "without a hold, an unready instance is replaced", refusal, "")
	_, refusal = attempt(run(t, unready, 1000, set), 100_000, instead)
	wantCode(t, "S12: an unready instance is replaced", refusal, model.CodeHold)

	s = crowded(t)
	if _, refusal := try(t, s, preemption(s, 8083, "i2", "i3")...); refusal != nil {
		t.Error(refusal)
	}
	s = must(t, s, set)
	_, refusal = try(t, s, preemption(s, 8083, "i2", "i3")...)
	wantCode(t, "S12: others are stopped to make room", refusal, model.CodeHold)
}

// A hold keeps a lost instance from being replaced. The exception is an instance that already has a replacement, on a
// node that is online but no longer active, because this replacement must move on to another node.
func TestHoldsBack(t *testing.T) {
	m := gateWorld(t, "", 2)
	mustApply(t, m, offline(m.State(), "n0"))
	mustApply(t, m, &InstancePlace{ID: "next", Group: "db/main", Slot: 0, Version: 1, Node: "n1", Replaces: "i0",
		Cause: model.CauseNodeOffline})
	for _, tt := range []struct {
		name   string
		hold   bool
		health model.Health
		intent model.Intent
		want   bool
	}{
		{"no hold", false, model.HealthOnline, model.IntentActive, false},
		{"its replacement may stay", true, model.HealthOnline, model.IntentActive, true},
		{"its replacement must move on", true, model.HealthOnline, model.IntentDraining, false},
		{"its replacement can't move on", true, model.HealthDegraded, model.IntentDraining, true},
	} {
		state := m.State()
		s := state.fork()
		s.Hold.Active = tt.hold
		edit(&s.Nodes, "n1", func(n *Node) { n.Health, n.Intent = tt.health, tt.intent })
		i0, _ := s.Instances.Get("i0")
		if got := s.HoldsBack(i0); got != tt.want {
			t.Errorf("%s: held back %v", tt.name, got)
		}
	}
}

// A hold records the time at which its reason went away, so that the next leader continues to count from this time. The
// command that records the time emits no event, and is refused if a person has just ended the hold.
func TestCalmOfAHold(t *testing.T) {
	yes, no := true, false
	s := aloneState(t)
	_, refusal := attempt(s, 20_000, &HoldSet{Active: true, Calm: &yes})
	wantCode(t, "calm without a hold", refusal, model.CodeStale)
	s = run(t, s, 20_000, &HoldSet{Active: true, Reason: "many"})
	for _, step := range []struct {
		at   model.Time
		calm *bool
		want model.Time
	}{{30_000, &yes, 30_000}, {40_000, &yes, 30_000}, {50_000, &no, 0}, {60_000, &yes, 60_000}} {
		events := s.Events.Len()
		s = run(t, s, step.at, &HoldSet{Active: true, Calm: step.calm})
		if !s.Hold.Active || s.Hold.Reason != "many" || s.Hold.Since != 20_000 || s.Hold.Calm != step.want ||
			s.Events.Len() != events {
			t.Errorf("at %d: %+v", step.at, s.Hold)
		}
	}
	if s = run(t, s, 70_000, &HoldSet{}); s.Hold.Active || s.Hold.Calm != 0 {
		t.Errorf("it has ended: %+v", s.Hold)
	}
}
