package httpapi

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// countingExplainer counts the calls of Waiting.
type countingExplainer struct {
	Explainer
	decided int
}

func (e *countingExplainer) Waiting(q Question) Waiting {
	e.decided++
	return Waiting{
		Groups: map[model.GroupID]model.Blocker{"web/http": {Code: model.CodeNoMemory, Message: decimal(q.State.Index)}}}
}

// deaf is a Liveness that has heard no node.
type deaf struct{ Liveness }

func (deaf) Live() map[model.NodeID]fsm.Liveness { return nil }

// proves that readings of one published state share a decision for a moment, and that another state gets its own
// decision.
func TestSharedWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		explain, shared := &countingExplainer{}, &sharedWaiting{}
		ask := func(index uint64, shared *sharedWaiting) {
			state := fsm.NewState()
			state.Index = index
			r := &reading{State: state, explain: explain, seen: deaf{}, shared: shared}
			if got := r.waiting().Groups["web/http"].Message; got != decimal(index) {
				t.Errorf("asked of the state at %d, told of %s", index, got)
			}
		}
		expect := func(what string, n int) {
			t.Helper()
			if explain.decided != n {
				t.Errorf("%s: decided %d times, want %d", what, explain.decided, n)
			}
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { ask(7, shared) })
		}
		wg.Wait()
		expect("ten at once", 1)
		ask(8, shared)
		expect("a newer state", 2)
		ask(8, nil)
		expect("a state that is not published", 3)
		time.Sleep(2 * sharedFor)
		ask(8, shared)
		expect("the same state later", 4)
	})
}
