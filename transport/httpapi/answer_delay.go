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
	delayAtOnce   = 64 // answers that may go at once, in the time of one delay
	delayAssigned = 150 * time.Millisecond
	delayServices = time.Second
	delayPeers    = 300 * time.Millisecond
	delayEach     = 300 * time.Microsecond // added for each waiting answer: about the time that one answer takes
	delayMost     = 600 * time.Millisecond // the delay grows to at most this
)

// answerDelay delays answers while many are due, so that each includes the changes made meanwhile. A few answers are
// never delayed.
type answerDelay struct {
	time time.Duration

	mu   sync.Mutex
	free bucket
	held int // waiting answers
}

func newAnswerDelay(d time.Duration) *answerDelay {
	return &answerDelay{time: d, free: bucket{left: delayAtOnce, at: time.Now()}}
}

// wait blocks for the delay if this is one of many answers, and longer while very many wait. It returns early when the
// caller has gone or the server stops.
func (l *answerDelay) wait(ctx context.Context) {
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

func (l *answerDelay) goesAtOnce() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.free.take(time.Now(), 1, delayAtOnce/l.time.Seconds(), delayAtOnce)
}

// hold changes the number of waiting answers by n, and returns their current delay.
func (l *answerDelay) hold(n int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held += n
	return max(l.time, min(l.time+time.Duration(l.held-1)*delayEach, delayMost))
}
