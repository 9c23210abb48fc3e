package fsm

import (
	"fmt"
	"testing"

	"github.com/outspan/outspan/model"
)

// Actors that make many requests never use up the room for those of another actor. Its share is what is left when each
// of them, and one more, has as much.
func TestRequestsBeyondShare(t *testing.T) {
	s := NewState()
	fill := func(actor model.Actor, n int) {
		own, _ := s.requestsOf.Get(actor)
		for i := own; i < n; i++ {
			s.Index++
			s.putRequest(&Request{ID: model.RequestID(fmt.Sprint(actor, i)), Index: s.Index, Actor: actor})
		}
	}
	refused := func(actor model.Actor, want bool) {
		t.Helper()
		refusal := s.RequestsBeyondShare(actor)
		if got := refusal != nil; got != want {
			t.Errorf("%s with %d stored requests: %v, want a refusal: %v", actor, s.Requests.Len(), refusal, want)
		}
		if refusal != nil && (refusal.Code != model.CodeBusy || refusal.Hint == "") {
			t.Errorf("the refusal is %+v", refusal)
		}
	}
	fill("cert:a", maxRequests/3)
	refused("cert:a", false) // alone it may have half of the room
	fill("cert:b", maxRequests/3)
	refused("cert:a", true)
	refused("cert:b", true)
	fill("cert:ci", 2*minRequestsOfActor)
	refused("cert:ci", false) // Apply accepts it too
	if refusal := s.RequestsFull("cert:ci"); refusal != nil {
		t.Error(refusal)
	}
	s.Now = s.Now.Add(requestMinimum) // the oldest can be forgotten
	refused("cert:a", false)
}
