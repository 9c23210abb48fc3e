package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/outspan/outspan/model"
)

func durationOf(d model.Duration) time.Duration {
	if d >= model.Duration(1<<62/time.Millisecond) {
		return 1 << 62
	}
	return time.Duration(d) * time.Millisecond
}

// stallWatch notices a stall: this process was paused or short of CPU time, for example because its machine was
// suspended. If the process heard nothing from other processes during a stall, this silence proves nothing about them.
// The process is calm while the watch's ticks are regular.
type stallWatch struct {
	mu    sync.Mutex
	every time.Duration // between ticks
	slack time.Duration // by how much a tick may be late; one heartbeat interval
	last  time.Time     // when the last tick was
	since time.Time     // since when the process has been calm

	gap    time.Duration // a longer time between two ticks is a pause; 0 means that pauses are not noticed
	paused time.Time     // when the last pause was noticed
	woken  chan struct{} // has a value after a pause
}

// stallTick is the longest time between ticks. It is short compared with the leader's lease.
const stallTick = 200 * time.Millisecond

func newStallWatch(heartbeat time.Duration) *stallWatch {
	now := time.Now()
	return &stallWatch{every: min(heartbeat/3, stallTick), slack: heartbeat, last: now, since: now,
		woken: make(chan struct{}, 1)}
}

func (s *stallWatch) run(ctx context.Context) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	s.tick(time.Now())
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.tick(time.Now())
		}
	}
}

// setHeartbeat sets how late a tick may be. It is called after the heartbeat interval has changed.
func (s *stallWatch) setHeartbeat(h time.Duration) {
	s.mu.Lock()
	s.slack = h
	s.mu.Unlock()
}

func (s *stallWatch) tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late(now) {
		s.since = now
	}
	if s.gap > 0 && now.Sub(s.last) > s.gap {
		s.paused = now
		select {
		case s.woken <- struct{}{}:
		default:
		}
	}
	s.last = now
}

// lastPause returns when a pause longer than gap was last noticed, or the zero time if there was none.
func (s *stallWatch) lastPause() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused
}

func (s *stallWatch) late(now time.Time) bool { return now.Sub(s.last) > s.every+s.slack }

// calm returns how long the process has run without a stall. Right after a stall it returns 0, even before the next
// tick.
func (s *stallWatch) calm() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.late(now) {
		return 0
	}
	return now.Sub(s.since)
}

// ticking reports whether the last tick is at most limit ago.
func (s *stallWatch) ticking(limit time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.last) <= limit
}
