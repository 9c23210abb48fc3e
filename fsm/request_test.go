package fsm

import (
	"errors"
	"fmt"
	"testing"

	"github.com/outspan/outspan/model"
)

// A request is stored for at least requestMinimum, and is not carried out again in that time. An actor that has reached
// maxRequestsOfActor is refused. If all actors together have reached maxRequests, only actors that have made fewer than
// minRequestsOfActor are served.
func TestRequestsFull(t *testing.T) {
	m := NewMachine()
	mustApply(t, m, register("n1"))
	ask := func(actor model.Actor, at model.Time, id string) (refusal *model.Error, replay bool) {
		t.Helper()
		entry := labelling(at, id)
		entry.Actor = actor
		data, err := EncodeEntry(entry)
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
	fill := func(actor model.Actor, n int) {
		t.Helper()
		var logged []Logged
		for i := range n {
			entry := labelling(begin+model.Time(i/1000), fmt.Sprint(actor, i))
			entry.Actor = actor
			data, err := EncodeEntry(entry)
			if err != nil {
				t.Fatal(err)
			}
			logged = append(logged, Logged{m.State().Index + 1 + uint64(i), 1, data})
		}
		if _, err := m.ApplyBatch(logged); err != nil {
			t.Fatal(err)
		}
	}
	busy := func(actor model.Actor, at model.Time) {
		t.Helper()
		if refusal, _ := ask(actor, at, "more"); refusal == nil || refusal.Code != model.CodeBusy {
			t.Errorf("one more request of %s: %v, want busy", actor, refusal)
		}
	}
	fill("cli:alice", maxRequestsOfActor)
	full := begin.Add(requestMinimum) - 1
	busy("cli:alice", full)
	if _, replay := ask("cli:alice", full, "cli:alice0"); !replay {
		t.Error("the oldest request was carried out again")
	}
	refusal, replay := ask("cli:mallory", full, "cli:alice0")
	if refusal == nil || refusal.Code != model.CodeRequestConflict || replay {
		t.Errorf("another actor with the same request: %v, replayed %v; want a conflict", refusal, replay)
	}
	fill("cli:carol", minRequestsOfActor)
	fill("cli:bob", maxRequests-maxRequestsOfActor-minRequestsOfActor)
	busy("cli:bob", full)
	busy("cli:carol", full)
	if refusal, _ := ask("cli:dave", full, "first"); refusal != nil {
		t.Errorf("a request of somebody who made none: %v", refusal)
	}
	if _, replay := ask("cli:alice", full, "cli:alice0"); !replay {
		t.Error("another's request made the oldest one forgotten")
	}
	before, later := m.State(), begin.Add(requestMinimum)
	if refusal, _ := ask("cli:alice", later, "more"); refusal != nil {
		t.Errorf("one more request when the oldest is old enough: %v", refusal)
	}
	if _, replay := ask("cli:alice", later, "cli:alice0"); replay {
		t.Error("the oldest request is not forgotten")
	}
	if err := errors.Join(Check(m.State()), CheckStep(before, m.State())); err != nil {
		t.Error(err)
	}
}

func labelling(at model.Time, id string) Entry {
	return Entry{Format: model.CurrentFormat, At: at, Wall: 1_700_000_000_000, Actor: "cli:alice",
		Request: model.RequestID(id), Body: "b",
		Groups: [][]Command{{&NodeLabel{ID: "n1", Labels: map[string]string{"a": "b"}}}}}
}
