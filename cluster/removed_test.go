package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
)

// A server is removed while it is cut off, so it does not learn of its removal. When it reaches the others again, it
// stops with an error that says that it was removed. The leader keeps its term.
func TestRemovedWhileAway(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		leader := r.leader(time.Second)
		away := r.other(leader)
		for _, s := range r.running() {
			if s != away {
				r.net.Isolate(away.host, s.host)
			}
		}
		eventually(t, 30*time.Second, "the removal", func() bool {
			return leader.Remove(t.Context(), away.ID(), true) == nil
		})
		time.Sleep(time.Minute)
		select {
		case <-away.done:
			t.Fatal("it ended before anybody could tell it: ", away.err)
		default:
		}
		before := leader.Term()
		r.net.Heal()
		select {
		case <-away.done:
		case <-time.After(time.Minute):
			t.Fatal("a removed server goes on")
		}
		if !errors.Is(away.err, &model.Error{Code: model.CodeConflict}) ||
			!strings.Contains(away.err.Error(), "was removed from the cluster") {
			t.Errorf("it ended with: %v", away.err)
		}
		if leader.Term() != before {
			t.Errorf("the leader's term was %d and is %d", before, leader.Term())
		}
	})
}

// Members that were cut off from each other don't stop, and continue once they reach each other again.
func TestAwayIsNotRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		r.threeServersRunning(nil)
		for _, a := range r.running() {
			for _, b := range r.running() {
				if a != b {
					r.net.Isolate(a.host, b.host)
				}
			}
		}
		time.Sleep(2 * time.Minute)
		r.net.Heal()
		time.Sleep(time.Minute)
		r.leader(time.Second)
		if n := len(r.running()); n != 3 {
			t.Errorf("%d servers run", n)
		}
	})
}
