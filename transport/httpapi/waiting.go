package httpapi

import (
	"sync"
	"time"
)

// sharedFor is how long one answer to "why do things wait" serves every reading of the same state. The answer changes
// with time, but not at once.
const sharedFor = 250 * time.Millisecond

// sharedWaiting lets readings of the same published state share the whole decision that answers "why do things wait".
// Many callers may follow the cluster, and all ask at once after each change.
type sharedWaiting struct {
	mu    sync.Mutex
	index uint64
	at    time.Time // zero: no answer yet
	last  Waiting
}

// of returns why things wait in r, which must be of a published state. Concurrent callers wait for the decision in
// progress.
func (s *sharedWaiting) of(r *reading) Waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || s.index != r.Index || time.Since(s.at) > sharedFor {
		s.last = r.explain.Waiting(r.question())
		s.index, s.at = r.Index, time.Now()
	}
	return s.last
}
