package fsm

import "testing"

// What a hold forbids is refused where the log is applied: it may have been decided just before the hold was set (S12).
func TestHoldIsKeptAtApply(t *testing.T) {
	set, end := &HoldSet{Active: true, Reason: "by hand"}, &HoldSet{}

	s := aloneState(t)
	late := offline(s, "n1")
	held := run(t, s, 20_000, set)
	_, refusal := attempt(held, 20_000, late)
	wantCode(t, "S12: a node is declared offline", refusal, CodeHold)
	_, refusal = attempt(run(t, held, 20_000, end), 20_000, late)
	wantCode(t, "the hold has ended, a node is declared offline", refusal, "")

	s = leaseState(t, fencedSpec(), 6*Second)
	s = run(t, s, 10_000, offline(s, "n1"))
	lost, _ := s.Instances.Get("i1")
	over := s.LeaseEnd(lost)
	_, refusal = attempt(run(t, s, over, set), over, &InstanceFenced{ID: "i1"})
	wantCode(t, "S12: the lease of a lost instance is over", refusal, CodeHold)
	_, refusal = attempt(s, over, &InstanceFenced{ID: "i1"})
	wantCode(t, "without a hold, the lease of a lost instance is over", refusal, "")

	m := gateWorld(t, "", 2)
	mustApply(t, m, offline(m.State(), "n0"))
	again := &InstancePlace{ID: "next", Group: "db/main", Slot: 0, Version: 1, Node: "n1", Replaces: "i0", Cause: CauseNodeOffline}
	free := m.State()
	_, refusal = attempt(free, free.Now, again)
	wantCode(t, "without a hold, a lost instance is replaced", refusal, "")
	mustApply(t, m, set)
	_, refusal = attempt(m.State(), free.Now, again)
	wantCode(t, "S12: a lost instance is replaced", refusal, CodeHold)

	s = crowded(t)
	if _, refusal := try(t, s, preemption(s, 8083, "i2", "i3")...); refusal != nil {
		t.Error(refusal)
	}
	s = must(t, s, set)
	_, refusal = try(t, s, preemption(s, 8083, "i2", "i3")...)
	wantCode(t, "S12: others are stopped to make room", refusal, CodeHold)
}
