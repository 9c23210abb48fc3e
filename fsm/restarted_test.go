package fsm

import (
	"testing"

	"github.com/outspan/outspan/model"
)

// A report of new restarts in place makes one event, with the number of restarts and the last exit code. A later report
// of the same number of restarts makes none.
func TestRestartInPlaceIsAnEvent(t *testing.T) {
	spec := webSpec()
	spec.Groups[0].Count = 1
	s := leaseState(t, spec, 6*model.Second)
	code := 137
	status := model.InstanceStatus{ID: "i1", Generation: 5, Observed: model.ObservedReady, Restarts: 2, ExitCode: &code}
	s = run(t, s, 2000, &NodeReport{ID: "n1", Instances: []model.InstanceStatus{status}})
	status.Generation++
	s = run(t, s, 3000, &NodeReport{ID: "n1", Instances: []model.InstanceStatus{status}})
	var told []*Event
	for _, row := range s.Events.rows.All() {
		if e, _ := row.open(); e.Type == model.EventRestarted {
			told = append(told, e)
		}
	}
	if len(told) != 1 || told[0].Subject != "instance/i1" || told[0].Data["restarts"] != "2" ||
		told[0].Data["exit_code"] != "137" {
		t.Errorf("the events are %+v", told)
	}
}
