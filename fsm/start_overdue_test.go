package fsm

import (
	"errors"
	"testing"
)

// An instance that never became ready in its time has failed: no budget keeps it. Before that the budget does.
func TestStartTimeoutIsNoVoluntaryStop(t *testing.T) {
	spec := webSpec()
	spec.Groups[0].Count = 4
	spec.Groups[0].Toleration.NotReady = new(Duration)
	*spec.Groups[0].Toleration.NotReady = Forever
	s := leaseState(t, spec, Minute)
	s = run(t, s, 2000, placed("i2", "web/api", 1, "n1", 20001), observed("n1", "i2", ObservedBooting))
	end := Time(2000).Add(s.Settings.StartTimeout)
	stop := &InstanceStop{ID: "i2", Cause: CauseStartTimeout}
	if _, refusal := attempt(s, end-1, stop); !errors.Is(refusal, &Error{Code: CodeBudgetMinReady}) {
		t.Errorf("before its time is over: %v", refusal)
	}
	if _, refusal := attempt(s, end, &InstanceStop{ID: "i2", Cause: CauseRollout}); !errors.Is(refusal, &Error{Code: CodeBudgetMinReady}) {
		t.Errorf("for another cause: %v", refusal)
	}
	run(t, s, end, stop)
}
