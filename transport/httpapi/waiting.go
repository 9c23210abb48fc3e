package httpapi

import (
	"sync"
	"time"
)

// sharedFor is how long readings of the same state share one Waiting. A Waiting changes with time, but slowly.
const sharedFor = 250 * time.Millisecond

// sharedWaiting lets readings of the same published state share one Waiting, which costs a whole decision. After each
// change, all callers that follow the cluster ask at once.
type sharedWaiting struct {
	mu    sync.Mutex
	index uint64
	at    time.Time // when last was computed; zero means never
	last  Waiting
}

// of returns why instances and drains wait in r, which must be of a published state. Concurrent callers wait for the
// decision in progress.
func (s *sharedWaiting) of(r *reading) Waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || s.index != r.Index || time.Since(s.at) > sharedFor {
		s.last = r.explain.Waiting(r.question())
		s.index, s.at = r.Index, time.Now()
	}
	return s.last
}
