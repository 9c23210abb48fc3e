package cluster

import (
	"sync"
	"time"

	"github.com/outspan/outspan/model"
)

// clock computes the cluster time on this server. That is the highest time that this server has heard, in an applied
// entry or from a leader, plus the time that has passed here since. So a new leader continues within a tick of the old
// leader's time, even if no entry was written for hours. Time in which no server runs doesn't count. The wall clock is
// not used.
type clock struct {
	mu   sync.Mutex
	base model.Time
	at   time.Time
}

func newClock() *clock { return &clock{at: time.Now()} }

// now returns cluster time in milliseconds. It never goes back.
func (c *clock) now() model.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read(time.Now())
}

func (c *clock) read(now time.Time) model.Time {
	return c.base + model.Time(now.Sub(c.at).Milliseconds())
}

// hear takes in a cluster time of the state or of a leader. It ignores a time that is not later than the current one.
func (c *clock) hear(t model.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if t > c.read(now) {
		c.base, c.at = t, now
	}
}
