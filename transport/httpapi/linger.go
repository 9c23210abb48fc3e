package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/outspan/outspan/transport"
)

// How long answers to agents wait in a burst. A placement on thousands of machines wakes all their agents, and without
// a delay each would ask again at once for the next decision. A change of a service wakes every agent.
const (
	lingerAtOnce   = 64 // answers that need not wait, within the delay of the others
	lingerAssigned = 150 * time.Millisecond
	lingerServices = time.Second
	lingerPeers    = 300 * time.Millisecond
	lingerEach     = 300 * time.Microsecond // longer for each waiting answer: about the time of answering it
	lingerMost     = 600 * time.Millisecond // upper bound of the added delay
)

// linger delays answers while many are due, so that each includes the changes made meanwhile. Few answers are never
// delayed.
type linger struct {
	time time.Duration

	mu   sync.Mutex
	free bucket
	held int // waiting answers
}

func newLinger(d time.Duration) *linger {
	return &linger{time: d, free: bucket{left: lingerAtOnce, at: time.Now()}}
}

// wait blocks for the delay if this is one of many answers, and longer while very many wait. It returns early when the
// caller has gone or the server stops.
func (l *linger) wait(ctx context.Context) {
	if l.goesAtOnce() {
		return
	}
	began := time.Now()
	defer l.hold(-1)
	timer := time.NewTimer(l.hold(1))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		case <-transport.Stopping(ctx):
			return
		}
		left := l.hold(0) - time.Since(began)
		if left <= 0 {
			return
		}
		timer.Reset(left)
	}
}

func (l *linger) goesAtOnce() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.free.take(time.Now(), 1, lingerAtOnce/l.time.Seconds(), lingerAtOnce)
}

// hold changes the number of waiting answers by n, and returns their current delay.
func (l *linger) hold(n int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held += n
	return max(l.time, min(l.time+time.Duration(l.held-1)*lingerEach, lingerMost))
}
