package api

import (
	"context"
	"sync"
	"time"

	"github.com/outspan/outspan/transport"
)

// How long answers to agents wait in a burst. What is placed on thousands of machines wakes them all, and each would come back at once for what was decided for it a
// moment later; a change of a service wakes every agent there is.
const (
	lingerAtOnce   = 64 // answers that need not wait, within the time that others do
	lingerAssigned = 150 * time.Millisecond
	lingerServices = time.Second
)

// linger holds answers back while many are due, so that each takes along what changes meanwhile. Few answers never wait.
type linger struct {
	time time.Duration

	mu   sync.Mutex
	free bucket
}

func newLinger(d time.Duration) *linger {
	return &linger{time: d, free: bucket{left: lingerAtOnce, at: time.Now()}}
}

// wait blocks for the time if this is one of many answers; until the caller has gone or the server stops at most.
func (l *linger) wait(ctx context.Context) {
	l.mu.Lock()
	atOnce := l.free.take(time.Now(), lingerAtOnce/l.time.Seconds(), lingerAtOnce)
	l.mu.Unlock()
	if atOnce {
		return
	}
	timer := time.NewTimer(l.time)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-transport.Stopping(ctx):
	}
}
