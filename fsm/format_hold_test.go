package fsm

import (
	"testing"

	"github.com/outspan/outspan/model"
)

// After a restore, a disabled node holds a new format back while its agent may run instances that the state does not
// know, because the agent must be able to read the decisions about them. An offline node holds no format back.
func TestUnknownInstancesHoldAFormatBack(t *testing.T) {
	next := model.CurrentFormat + 1
	holds := func(s State) bool {
		n, _ := s.Nodes.Get("n3")
		return n.HoldsBack(next)
	}
	s := run(t, aloneState(t), 2000, &NodeIntent{ID: "n3", Intent: model.IntentDisabled})
	if holds(s) {
		t.Error("a disabled node that runs nothing holds the format back")
	}
	s = run(t, s, 2000, &RestoreMark{})
	if !holds(s) {
		t.Error("after a restore its agent has not told what it runs, and the node does not hold the format back")
	}
	s = inventory(t, s, "n3", nil, model.Holding{ID: "x", Group: aloneGroup, Spec: "s"})
	if !holds(s) {
		t.Error("it runs an instance that the state does not know, and does not hold the format back")
	}
	if n := s.CantRead(next); n == nil {
		t.Error("nothing holds the format back")
	}
	gone := run(t, s, 2000,
		&NodeReport{ID: "n3", Full: true, Incarnation: s.Incarnation,
			Instances: []model.InstanceStatus{{ID: "x", Generation: 1, Observed: model.ObservedStopped}}})
	if holds(gone) {
		t.Error("the instance has stopped, and the node still holds the format back")
	}
	if holds(run(t, s, 2000, offline(s, "n3"))) {
		t.Error("it is offline, and holds the format back")
	}
}
