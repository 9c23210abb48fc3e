package fsm

import (
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// A reason is cut between characters, to at most 129 bytes and the rest of a character. All servers must cut alike.
func TestAvoidReasonIsCut(t *testing.T) {
	const most = 129
	for _, c := range []struct{ said, kept string }{
		{"crash_loop", "crash_loop"}, {strings.Repeat("x", most), strings.Repeat("x", most)},
		{strings.Repeat("x", most+1), strings.Repeat("x", most)},
		{strings.Repeat("ä", most), strings.Repeat("ä", (most+1)/2)},
	} {
		s := rest(t, 4)
		inst, _ := s.Instances.Get("i0")
		s.avoid(inst, 0, c.said)
		n, _ := s.Nodes.Get("n1")
		if got := n.Avoid[0].Reason; got != c.kept {
			t.Errorf("of %d bytes %d are kept, want %d", len(c.said), len(got), len(c.kept))
		}
	}
}

// A person can withdraw the avoid of an eviction, even after the stop has begun. Entries of the avoid list that come
// from failures stay.
func TestAvoidIsTakenBack(t *testing.T) {
	s := rest(t, 4)
	back := &InstanceMark{ID: "i0", Avoid: true}
	if err := back.apply(s); err == nil {
		t.Error("it took back what nobody said")
	}
	inst, _ := s.Instances.Get("i0")
	s.avoid(inst, inst.Version, "crash_loop")
	if err := (&InstanceStop{ID: "i0", Cause: model.CauseUser, By: "ann", Avoid: true}).apply(s); err != nil {
		t.Fatal(err)
	}
	if until, ok := s.AvoidedOnRequest(inst, s.Now); !ok || until != s.Now.Add(model.Hour) {
		t.Errorf("avoided until %d, %v", until, ok)
	}
	if err := back.apply(s); err != nil {
		t.Fatal(err)
	}
	n, _ := s.Nodes.Get("n1")
	if len(n.Avoid) != 1 || n.Avoid[0].Reason != "crash_loop" {
		t.Errorf("it is left with %v", n.Avoid)
	}
	mark := &InstanceMark{ID: "i1", Requested: true, Surge: true, Cause: model.CauseUser, By: "ann", Avoid: true}
	if err := mark.apply(s); err != nil {
		t.Fatal(err)
	}
	if err := (&InstanceMark{ID: "i1", Avoid: true}).apply(s); err != nil {
		t.Fatal(err)
	}
	surge, _ := s.Instances.Get("i1")
	if _, avoids := s.AvoidedOnRequest(surge, s.Now); avoids || surge.Eviction.Requested {
		t.Errorf("avoids %v, to be evicted %v", avoids, surge.Eviction.Requested)
	}
}
