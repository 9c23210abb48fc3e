package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/outspan/outspan/transport"
)

// How long answers to agents wait in a burst. What is placed on thousands of machines wakes them all, and each would
// come back at once for what was decided for it a moment later; a change of a service wakes every agent there is.
const (
	lingerAtOnce   = 64 // answers that need not wait, within the time that others do
	lingerAssigned = 150 * time.Millisecond
	lingerServices = time.Second
	lingerPeers    = 300 * time.Millisecond
	lingerEach     = 300 * time.Microsecond // longer for each that waits already: about the time of answering it
	lingerMost     = 600 * time.Millisecond // upper bound of the added delay
)

// linger holds answers back while many are due, so that each takes along what changes meanwhile. Few answers never
// wait.
type linger struct {
	time time.Duration

	mu   sync.Mutex
	free bucket
	held int // answers that wait
}

func newLinger(d time.Duration) *linger {
	return &linger{time: d, free: bucket{left: lingerAtOnce, at: time.Now()}}
}

// wait blocks for the time if this is one of many answers, and longer while very many wait; until the caller has gone
// or the server stops at most.
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

// hold counts those who wait, and returns for how long they do at present.
func (l *linger) hold(n int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held += n
	return max(l.time, min(l.time+time.Duration(l.held-1)*lingerEach, lingerMost))
}
