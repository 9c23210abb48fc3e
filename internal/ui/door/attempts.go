package door

import (
	"sync"
	"time"
)

// Bounds of sign-ins. Those that succeed don't count, because many people may share an address.
const (
	attemptsAtOnce = 10               // of one source
	attemptEvery   = 6 * time.Second  // after that
	maxSources     = 16384            // that are remembered; one more, and all are forgotten
	maxSigning     = 32               // sign-ins that are under way
	signInTime     = 30 * time.Second // for one sign-in
)

// attempts limits how often each source may try to sign in. It is safe for concurrent use.
type attempts struct {
	now func() time.Time

	mu sync.Mutex
	of map[string]time.Time // when the source will have all of its attempts again
}

func newAttempts(now func() time.Time) *attempts {
	return &attempts{now: now, of: map[string]time.Time{}}
}

// take counts an attempt. It returns false if the source has none left.
func (a *attempts) take(source string) bool {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	full, known := a.of[source]
	if !known && len(a.of) >= maxSources {
		clear(a.of)
	}
	if full.Before(now) {
		full = now
	}
	full = full.Add(attemptEvery)
	if full.Sub(now) > attemptsAtOnce*attemptEvery {
		return false
	}
	a.of[source] = full
	return true
}

// giveBack undoes one take.
func (a *attempts) giveBack(source string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if full, known := a.of[source]; known {
		a.of[source] = full.Add(-attemptEvery)
	}
}
