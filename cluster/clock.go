package cluster

import (
	"sync"
	"time"

	"github.com/outspan/outspan/model"
)

// clock computes the cluster time on this server: the highest time that this server has heard in an applied entry or
// from a leader, plus the time that has passed since then. The leader sends its cluster time to all servers about once
// a second. So a new leader's time is close to the old leader's, even if no entry was written for hours. Cluster time
// does not advance while no server runs, and does not depend on the wall clock.
type clock struct {
	mu   sync.Mutex
	base model.Time
	at   time.Time
}

func newClock() *clock { return &clock{at: time.Now()} }

// now returns the cluster time in milliseconds, which never goes back.
func (c *clock) now() model.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read(time.Now())
}

func (c *clock) read(now time.Time) model.Time {
	return c.base + model.Time(now.Sub(c.at).Milliseconds())
}

// hear sets the cluster time to t, which comes from the state or from a leader. hear ignores t if it is not later than
// the current cluster time.
func (c *clock) hear(t model.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if t > c.read(now) {
		c.base, c.at = t, now
	}
}
