package httpapi

import (
	"sync"
	"time"
)

// sharedFor is how long readings of the same state share one Waiting. A Waiting changes with time, but slowly.
const sharedFor = 250 * time.Millisecond

// sharedWaiting lets readings of the same published state share one Waiting, because a Waiting takes a whole decision
// to compute. After each change, all callers with a blocking query ask for one at the same time.
type sharedWaiting struct {
	mu    sync.Mutex
	index uint64
	at    time.Time // when the field last was computed; zero means never
	last  Waiting
}

// of returns why instances and drains wait in r, which must be a reading of the published state. Concurrent callers
// wait for one computation and share its result.
func (s *sharedWaiting) of(r *reading) Waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || s.index != r.Index || time.Since(s.at) > sharedFor {
		s.last = r.explain.Waiting(r.question())
		s.index, s.at = r.Index, time.Now()
	}
	return s.last
}
