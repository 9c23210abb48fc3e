package fsm

import (
	"slices"
	"testing"

	"github.com/outspan/outspan/model"
)

// TestOneEventPerFlip: a command that requests or cancels an eviction leaves an event. If the eviction is already
// requested or canceled, the same command by a person or a policy leaves no event.
//
// proves L15, X16
func TestOneEventPerFlip(t *testing.T) {
	s, do := membersWorld(t)
	do(&DrainStart{ID: "d1", Nodes: []string{"n1"},
		Options: model.DrainOptions{Deadline: model.Hour, Policy: string(model.PolicyEvictAll)}})
	from := NewEventKey(s.Index+1, 0)
	person := InstanceMark{ID: "i1", Requested: true, Cause: model.CauseUser, By: "ann"}
	policy := InstanceMark{ID: "i1", Requested: true, Cause: model.CauseNodeDraining, By: "d1", Automatic: true}
	cancel := InstanceMark{ID: "i1"}
	for _, c := range []InstanceMark{
		cancel, policy, policy, person, person, policy, cancel, cancel, person, person, policy,
	} {
		if r := do(&c); r[0].Refusal != nil {
			t.Fatal(r[0].Refusal)
		}
	}
	if r := do(&DrainCancel{ID: "d1"}); r[0].Refusal != nil {
		t.Fatal(r[0].Refusal)
	}
	do(&cancel)
	var got []string
	for _, e := range s.Events.From(from) {
		if e.Type == model.EventEviction {
			got = append(got, e.Before+" -> "+e.After+" "+e.Data["reason"])
		}
	}
	want := []string{
		"false -> true EvictionAutomatic", "true -> false EvictionCanceled",
		"false -> true EvictionUserRequested", "true -> false EvictionCanceled",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the events are %q, want %q", got, want)
	}
}
