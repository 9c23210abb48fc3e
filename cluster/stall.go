package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/outspan/outspan/fsm"
)

// durationOf turns a duration of the state into one of the clock.
func durationOf(d fsm.Duration) time.Duration {
	if d >= fsm.Duration(1<<62/time.Millisecond) {
		return 1 << 62
	}
	return time.Duration(d) * time.Millisecond
}

// stallWatch notices that this process was paused or starved: SIGSTOP, a suspended machine, a box with no time to
// give. What it did not hear meanwhile says nothing about others. It counts as calm only from its own regular
// ticks, so a question asked right after a pause, before the next tick, finds it not calm.
type stallWatch struct {
	mu    sync.Mutex
	every time.Duration
	last  time.Time // tick
	since time.Time // calm since
}

func newStallWatch(heartbeat time.Duration) *stallWatch {
	now := time.Now()
	return &stallWatch{every: min(heartbeat/3, time.Second), last: now, since: now}
}

// run ticks until ctx ends.
func (s *stallWatch) run(ctx context.Context) {
	for {
		s.mu.Lock()
		every := s.every
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
			s.tick(time.Now())
		}
	}
}

// setHeartbeat follows the setting.
func (s *stallWatch) setHeartbeat(h time.Duration) {
	s.mu.Lock()
	s.every = min(h/3, time.Second)
	s.mu.Unlock()
}

// late is how much later than due a tick may be: one heartbeat.
func (s *stallWatch) late(now time.Time) bool { return now.Sub(s.last) > 4*s.every }

func (s *stallWatch) tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late(now) {
		s.since = now
	}
	s.last = now
}

// calm is for how long the process has run without a stall; 0 right after one.
func (s *stallWatch) calm() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.late(now) {
		return 0
	}
	return now.Sub(s.since)
}
