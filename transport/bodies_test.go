package transport

import (
	"errors"
	"testing"

	"github.com/outspan/outspan/model"
)

// Callers that take what they can get leave room for others. With the limits alone, eight would use up everything.
func TestBodiesLeaveRoomForOthers(t *testing.T) {
	b := NewBodies(32, 256)
	for i := range 12 {
		who, got := model.Subject{Kind: model.SubjectCert, Name: string(rune('A' + i))}, 0
		for b.Take(who, 1) == nil {
			got++
		}
		if got == 0 {
			t.Fatalf("caller %d gets nothing, and %d bytes are held", i, b.held)
		}
		if i == 8 && got < 8 {
			t.Errorf("after 8 greedy callers there are %d bytes", got)
		}
	}
}

func TestBodies(t *testing.T) {
	b := NewBodies(100, 250)
	agent := func(name string) model.Subject { return model.Subject{Kind: model.SubjectAgent, Name: name} }
	busy := &model.Error{Code: model.CodeBusy}
	for _, step := range []struct {
		who  model.Subject
		n    int64 // bytes to take, or if negative, bytes to give back
		want error
	}{
		{agent("a"), 60, nil},
		{agent("a"), 60, busy}, // over the limit of one caller
		{agent("b"), 100, nil},
		{agent("c"), 100, busy}, // over the limit of all callers
		{agent("a"), -60, nil},
		{agent("c"), 100, nil},
		{model.Subject{Kind: model.SubjectServer, Name: "s1"}, 50, nil},
		{model.Subject{Kind: model.SubjectServer, Name: "s1"}, 1, busy},
		{agent("c"), -100, nil},
		{model.Subject{Kind: model.SubjectServer, Name: "s1"}, 100, nil}, // only the limit of all callers holds
	} {
		if step.n < 0 {
			b.Give(step.who, -step.n)
			continue
		}
		if err := b.Take(step.who, step.n); !errors.Is(err, step.want) {
			t.Errorf("%s takes %d: %v, want %v", step.who, step.n, err, step.want)
		}
	}
	b.Give(agent("b"), 100)
	b.Give(model.Subject{Kind: model.SubjectServer, Name: "s1"}, 150)
	if b.held != 0 || len(b.of) != 0 {
		t.Errorf("all was given back, and %d bytes of %d callers are held", b.held, len(b.of))
	}
}
