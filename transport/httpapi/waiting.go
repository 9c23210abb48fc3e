package httpapi

import (
	"sync"
	"time"
)

// sharedFor is for how long one answer to "why do things wait" serves every reading of the same state: what it says
// changes with time, but not in a moment.
const sharedFor = 250 * time.Millisecond

// sharedWaiting lets readings of the same published state share the whole decision that it takes to say why things
// wait: many who follow a cluster in which something waits ask at once after each change.
type sharedWaiting struct {
	mu    sync.Mutex
	index uint64
	at    time.Time // zero: nothing is there yet
	last  Waiting
}

// of returns why things wait in r, which must be of a published state. Who comes while another decides waits for that.
func (s *sharedWaiting) of(r *reading) Waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || s.index != r.Index || time.Since(s.at) > sharedFor {
		s.last = r.explain.Waiting(r.question())
		s.index, s.at = r.Index, time.Now()
	}
	return s.last
}
