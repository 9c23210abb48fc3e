package fsm

import (
	"strconv"
	"testing"

	"github.com/outspan/outspan/model"
)

// TestCheckFindsWhatIsBrokenInThePast breaks events, stored requests and their indexes. Check and CheckPast must find
// it. CheckPresent does not read them.
func TestCheckFindsWhatIsBrokenInThePast(t *testing.T) {
	request := func(r Request) func(*State) { return func(s *State) { s.putRequest(&r) } }
	event := func(e Event) func(*State) { return func(s *State) { s.Events.put(e.Key, &e) } }
	good := busyState(t)
	now := NewEventKey(good.Index, 9)
	tests := []struct {
		name  string
		says  string
		spoil func(*State)
	}{
		{"event type", `type "odd"`, event(Event{Key: now, Type: "odd", Subject: "x"})},
		{"event about nothing", `type "job.`, event(Event{Key: now, Type: model.EventJob})},
		{"event cause", `cause "odd"`, event(Event{Key: now, Type: model.EventJob, Subject: "x", Cause: "odd"})},
		{"event that can't be read", "can't be read", func(s *State) {
			s.Events.putPacked(now, pack(&Event{Key: now, Type: model.EventJob, Subject: "x"})+"x")
		}},
		{"event under another key", "its row says", func(s *State) {
			s.Events.put(now, &Event{Key: now - 1, Type: model.EventJob, Subject: "x"})
		}},
		{"event to come", "the state is at", event(Event{Key: 1 << 60, Type: model.EventJob, Subject: "x"})},
		{"event of no entry", "the state is at", event(Event{Key: 1, Type: model.EventJob, Subject: "x"})},
		{"bytes of events", "the index of bytes of events", func(s *State) { s.Events.bytes++ }},

		{"request under another id", `request "r": its row says "x"`, func(s *State) {
			s.Requests.put("r", &Request{ID: "x", Index: 1})
		}},
		{"request without an id", `request "": its row says ""`, request(Request{Index: 1})},
		{"request of a later entry", "is of index", request(Request{ID: "r", Index: good.Index + 1})},
		{"request of a later time", "is of index", request(Request{ID: "r", Index: 1, At: good.Now + 1})},
		{"request not in the log", "the log of requests has", func(s *State) {
			s.Requests.put("r", &Request{ID: "r", Index: 1})
		}},
		{"log of a request that is gone", "the index of log of requests", func(s *State) { s.requestLog.put(1, "r") }},
		{"requests not counted", "the index of actors of requests", func(s *State) {
			request(Request{ID: "r", Index: 1, Actor: "ann"})(s)
			s.requestsOf.del("ann")
		}},
		{"too many requests counted", "2 requests of ann are counted, not 1", func(s *State) {
			request(Request{ID: "r", Index: 1, Actor: "ann"})(s)
			s.requestsOf.put("ann", 2)
		}},
		{"too many requests", "requests are kept", func(s *State) {
			for i := range maxRequests + minRequestsOfActor + 1 {
				request(Request{ID: model.RequestID(strconv.Itoa(i)), Index: uint64(i), Actor: "ann"})(s)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := good.fork()
			tt.spoil(s)
			wantFinding(t, CheckPast(*s), "", tt.says)
			wantFinding(t, Check(*s), "", tt.says)
			if err := CheckPresent(*s); err != nil {
				t.Errorf("CheckPresent: %v", err)
			}
		})
	}
	s := good.fork()
	request(Request{ID: "r", Index: good.Index, At: good.Now, Actor: "ann"})(s)
	event(Event{Key: NewEventKey(1, 9), Type: model.EventJob, Subject: "x"})(s)
	if err := CheckPast(*s); err != nil {
		t.Errorf("a good past: %v", err)
	}
}
