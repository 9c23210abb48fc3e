package httpapi

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
)

func subject(name string) model.Subject { return model.Subject{Kind: model.SubjectCert, Name: name} }

// newTestTurns returns turns of one at a time, and the shares that were used up.
func newTestTurns(wait, lent time.Duration) (*turns, *[]Share) {
	var beyond []Share
	t := newTurns(1, func(s Share) { beyond = append(beyond, s) })
	t.wait, t.lent = wait, lent
	return t, &beyond
}

// A subject that has its turn keeps only its own calls waiting. They are refused when they have waited too long.
func TestTurnsOfOneSubject(t *testing.T) {
	turns, beyond := newTestTurns(20*time.Millisecond, time.Hour)
	give, err := turns.take(t.Context(), subject("a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := turns.take(t.Context(), subject("a")); !errors.Is(err, &model.Error{Code: model.CodeBusy}) {
		t.Errorf("a second turn: %v", err)
	}
	if len(*beyond) != 1 || (*beyond)[0] != ShareWork {
		t.Errorf("used up: %v", *beyond)
	}
	other, err := turns.take(t.Context(), subject("b"))
	if err != nil {
		t.Fatalf("another subject: %v", err)
	}
	other()
	give()
	give() // has no effect
	again, err := turns.take(t.Context(), subject("a"))
	if err != nil {
		t.Fatalf("after the first turn has ended: %v", err)
	}
	again()
	if len(turns.of) != 0 {
		t.Errorf("%d subjects are remembered", len(turns.of))
	}
}

// A call that waits gets the turn when it ends, and also when it has lasted too long. One whose caller has gone leaves
// the line.
func TestTurnsPassOn(t *testing.T) {
	turns, _ := newTestTurns(time.Minute, 50*time.Millisecond)
	if _, err := turns.take(t.Context(), subject("a")); err != nil { // never given back
		t.Fatal(err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := turns.take(gone, subject("a")); !errors.Is(err, &model.Error{Code: model.CodeTimeout}) {
		t.Errorf("a caller that has gone: %v", err)
	}
	give, err := turns.take(t.Context(), subject("a"))
	if err != nil {
		t.Fatal(err)
	}
	give()
	turns.mu.Lock()
	defer turns.mu.Unlock()
	if len(turns.of) != 0 {
		t.Errorf("%d subjects are remembered", len(turns.of))
	}
}
