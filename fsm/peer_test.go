package fsm

import (
	"slices"
	"testing"

	"github.com/outspan/outspan/model"
)

// TestPeerState: how the other instances of a group see one.
func TestPeerState(t *testing.T) {
	for _, tt := range []struct {
		desired  model.Desired
		observed model.Observed
		want     model.PeerState
	}{
		{model.DesiredRunning, model.ObservedPending, model.PeerStarting},
		{model.DesiredRunning, model.ObservedBooting, model.PeerStarting},
		{model.DesiredRunning, model.ObservedFailed, model.PeerStarting},
		{model.DesiredRunning, model.ObservedReady, model.PeerReady},
		{model.DesiredRunning, model.ObservedUnready, model.PeerUnready},
		{model.DesiredDraining, model.ObservedReady, model.PeerStopping},
		{model.DesiredStopped, model.ObservedDraining, model.PeerStopping},
		{model.DesiredRunning, model.ObservedLost, model.PeerLost},
		{model.DesiredStopped, model.ObservedLost, model.PeerLost},
	} {
		i := Instance{Desired: tt.desired, Status: model.InstanceStatus{Observed: tt.observed}}
		if got := i.PeerState(); got != tt.want {
			t.Errorf("%s and %s: %q, want %q", tt.desired, tt.observed, got, tt.want)
		}
	}
}

// TestPeersOf: the instances of a group see each other, except those that have stopped or still wait for room.
func TestPeersOf(t *testing.T) {
	s := must(t, crowded(t), preemption(crowded(t), 8081, "i2", "i3")...)
	peers := func(group model.GroupID, most int) (ids []model.InstanceID) {
		for i := range s.PeersOf(group) {
			if ids = append(ids, i.ID); len(ids) == most {
				break
			}
		}
		return ids
	}
	want := func(what string, got []model.InstanceID, want ...model.InstanceID) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	want("both stop", peers("low/g", 9), "i2", "i3")
	want("only the first", peers("low/g", 1), "i2")
	want("it waits for room", peers("new/g", 9))
	s = must(t, s, observedAt("n1", "i2", model.ObservedStopped, 2))
	want("one has stopped", peers("low/g", 9), "i3")
}
