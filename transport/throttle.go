package transport

import (
	"sync"
	"time"
)

type throttle struct {
	mu      sync.Mutex
	next    time.Time
	dropped int
}

func (t *throttle) allow(now time.Time) (dropped int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.next) {
		t.dropped++
		return 0, false
	}
	dropped, t.dropped, t.next = t.dropped, 0, now.Add(10*time.Second)
	return dropped, true
}
