package fsm

import (
	"testing"

	"github.com/outspan/outspan/model"
)

// TestAckLeavesATrace: the first acknowledgement leaves an event that says who acknowledged which instances. The drain
// records how many instances stayed.
func TestAckLeavesATrace(t *testing.T) {
	s := busyState(t)
	events := func() (all []*Event) {
		for _, e := range s.Events.All() {
			if e.Type == model.EventNodeAck {
				all = append(all, e)
			}
		}
		return all
	}
	do := func(c Command) {
		t.Helper()
		after, refusal := try(t, s, c)
		if refusal != nil {
			t.Fatal(refusal)
		}
		s = after
	}
	do(&NodeAck{ID: "n1"})
	do(&NodeAck{ID: "n1"}) // leaves no second event
	n, _ := s.Nodes.Get("n1")
	if got := events(); len(got) != 1 || got[0].Subject != "node/n1" || got[0].Data["instances"] != "i3" ||
		got[0].Data["name"] != n.Name || got[0].Actor == "" {
		t.Fatalf("events: %+v", got)
	}
	do(&NodeAck{ID: "n1", Instances: []model.InstanceID{"i1"}}) // it can be moved, so it does not stay
	n, _ = s.Nodes.Get("n1")
	if got := s.Acknowledged(n); got != 1 {
		t.Errorf("%d instances stay, want 1", got)
	}
	ending := s.fork()
	edit(&ending.Instances, "i3", func(i *Instance) { i.Desired = model.DesiredDraining })
	if got := ending.Acknowledged(n); got != 0 {
		t.Errorf("%d instances stay while the only one ends", got)
	}
	do(&InstanceStop{ID: "i1", Cause: model.CauseUser, Bypass: true})
	do(observedAt("n1", "i1", model.ObservedStopped, 2))
	do(&DrainEnd{ID: "d1", Node: "n1", Phase: model.PhaseDrained})
	do(&NodeIntent{ID: "n1", Intent: model.IntentActive})
	d, _ := s.Drains.Get("d1")
	if part, _ := d.Node("n1"); part.Acked != 1 {
		t.Errorf("the drain kept that %d instances stayed, want 1", part.Acked)
	}
	if n, _ = s.Nodes.Get("n1"); n.Acked != nil {
		t.Errorf("the active node has %v acknowledged", n.Acked)
	}
}

// TestNamesOfManyInstances: instanceNames lists at most eventInstances names, and says how many more there are.
func TestNamesOfManyInstances(t *testing.T) {
	ids := make([]model.InstanceID, eventInstances+2)
	for i := range ids {
		ids[i] = "i"
	}
	want := "i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, and 2 more"
	if got := instanceNames(ids); got != want {
		t.Errorf("got %q", got)
	}
}
