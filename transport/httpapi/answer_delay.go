package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/outspan/outspan/transport"
)

// Delays of the answers to agents in a burst. A placement on thousands of machines wakes all their agents, and a change
// of a service wakes every agent. Without a delay, each agent would get one change and at once ask for the next one.
const (
	delayAtOnce   = 64 // size of the bucket of answers that are sent at once; it refills within one delay
	delayAssigned = 150 * time.Millisecond
	delayServices = time.Second
	delayPeers    = 300 * time.Millisecond
	delayTrust    = 300 * time.Millisecond
	delayEach     = 300 * time.Microsecond // added per waiting answer, about the time that sending it takes
	// delayMost bounds the growth. delayServices is longer, so it never grows: in a second, 3,000 answers are sent.
	delayMost = 600 * time.Millisecond
)

// answerDelay delays the answers of a burst, so that each includes the changes made meanwhile. An answer is not delayed
// if it finds a token in a bucket of delayAtOnce tokens.
type answerDelay struct {
	time time.Duration // the delay

	mu   sync.Mutex
	free bucket
	held int // waiting answers
}

func newAnswerDelay(d time.Duration) *answerDelay {
	return &answerDelay{time: d, free: bucket{left: delayAtOnce, at: time.Now()}}
}

// wait blocks for the delay if many answers are ready, and longer if very many wait. It returns early if ctx ends or
// the server begins to stop.
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

// hold changes the number of waiting answers by n, and returns the delay for the new number.
func (l *answerDelay) hold(n int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held += n
	return max(l.time, min(l.time+time.Duration(l.held-1)*delayEach, delayMost))
}
