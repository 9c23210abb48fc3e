package fsm

import (
	"fmt"
	"testing"
)

// A request is not forgotten before ten minutes are over, so that sending it again does nothing; as many as are kept are all that can be made meanwhile.
func TestRequestsFull(t *testing.T) {
	m := NewMachine()
	mustApply(t, m, register("n1"))
	ask := func(at Time, id string) (refusal *Error, replay bool) {
		t.Helper()
		data, err := EncodeEntry(labelling(at, id))
		if err != nil {
			t.Fatal(err)
		}
		results, err := m.Apply(m.State().Index+1, 1, data)
		if err != nil {
			t.Fatal(err)
		}
		return results[0].Refusal, results[0].Replay
	}
	begin := m.State().Now
	var logged []Logged
	for n := range keptRequests {
		data, err := EncodeEntry(labelling(begin+Time(n/1000), fmt.Sprint("r", n)))
		if err != nil {
			t.Fatal(err)
		}
		logged = append(logged, Logged{m.State().Index + 1 + uint64(n), 1, data})
	}
	if _, err := m.ApplyBatch(logged); err != nil {
		t.Fatal(err)
	}
	full := begin.Add(requestMinimum) - 1
	if refusal, _ := ask(full, "one-more"); refusal == nil || refusal.Code != CodeBusy {
		t.Errorf("one more request: %v, want busy", refusal)
	}
	if _, replay := ask(full, "r0"); !replay {
		t.Error("the oldest request was carried out again")
	}
	others := labelling(full, "of-another")
	others.Actor = "cli:bob"
	if data, err := EncodeEntry(others); err != nil {
		t.Fatal(err)
	} else if results, err := m.Apply(m.State().Index+1, 1, data); err != nil || results[0].Refusal != nil {
		t.Errorf("a request of somebody who made none: %v, %v", results, err)
	}
	if _, replay := ask(full, "r0"); !replay {
		t.Error("another's request made the oldest one forgotten")
	}
	if refusal, _ := ask(full+1, "one-more"); refusal != nil {
		t.Errorf("one more request when the oldest is old enough: %v", refusal)
	}
	if s := m.State(); s.Requests.Len() != keptRequests || s.Requests.Has("r0") {
		t.Errorf("%d requests are kept, the oldest among them: %v", s.Requests.Len(), s.Requests.Has("r0"))
	}
}

func labelling(at Time, id string) Entry {
	return Entry{Format: CurrentFormat, At: at, Wall: 1_700_000_000_000, Actor: "cli:alice", Request: RequestID(id), Body: "b",
		Groups: [][]Command{{&NodeLabel{ID: "n1", Labels: map[string]string{"a": "b"}}}}}
}
