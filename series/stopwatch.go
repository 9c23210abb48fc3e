package series

import (
	"sync"
	"time"
)

// Times sums up how long something took.
type Times struct {
	Count int64
	Sum   time.Duration
	Most  time.Duration
}

// values returns the mean and the longest time in seconds. They are unknown if nothing happened.
func (t Times) values() (mean, most float32) {
	if t.Count == 0 {
		return unknown(), unknown()
	}
	return float32(t.Sum.Seconds() / float64(t.Count)), float32(t.Most.Seconds())
}

// Stopwatch collects Times. The zero value is ready. Safe for concurrent use.
type Stopwatch struct {
	mu  sync.Mutex
	all Times
}

// Note adds one time.
func (w *Stopwatch) Note(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all.Count++
	w.all.Sum += d
	w.all.Most = max(w.all.Most, d)
}

// Take returns the times since the last Take.
func (w *Stopwatch) Take() Times {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.all
	w.all = Times{}
	return t
}
