package fsm

import (
	"errors"
	"testing"

	"github.com/outspan/outspan/model"
)

// A budget refuses a stop with the cause start_timeout before the time of the setting start_timeout is over, and allows
// the stop afterwards. It still refuses a stop for another cause.
func TestStartTimeoutIsNoVoluntaryStop(t *testing.T) {
	spec := webSpec()
	spec.Groups[0].Count = 4
	spec.Groups[0].Toleration.NotReady = new(model.Duration)
	*spec.Groups[0].Toleration.NotReady = model.Forever
	s := leaseState(t, spec, model.Minute)
	s = run(t, s, 2000, placed("i2", "web/api", 1, "n1", 20001), observed("n1", "i2", model.ObservedBooting))
	end := model.Time(2000).Add(s.Settings.StartTimeout)
	stop := &InstanceStop{ID: "i2", Cause: model.CauseStartTimeout}
	if _, refusal := attempt(s, end-1, stop); !errors.Is(refusal, &model.Error{Code: model.CodeBudgetMinReady}) {
		t.Errorf("before its time is over: %v", refusal)
	}
	if _, refusal := attempt(s, end, &InstanceStop{ID: "i2", Cause: model.CauseRollout}); !errors.Is(refusal,
		&model.Error{Code: model.CodeBudgetMinReady}) {
		t.Errorf("for another cause: %v", refusal)
	}
	run(t, s, end, stop)
}
