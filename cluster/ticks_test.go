package cluster

import (
	"testing"
	"testing/synctest"
	"time"
)

// Each tick names the leader's index and the last reply that the leader got from the follower. The follower never
// reports too small an age for its stale reads, even if a tick was delayed, names a reply of an earlier process of the
// follower, or names an index that the follower has not reached. The age stays small while the leader writes so much
// that the follower always lacks the last entry.
func TestProgressIsNoFresherThanKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p progress
		began := time.Now()
		age := func(own uint64) time.Duration {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.reach(own); p.fresh.IsZero() {
				return -1
			}
			return time.Since(p.fresh)
		}
		first := p.told(5, 0, 5)
		if got := age(5); got != -1 {
			t.Errorf("a tick that names no reply: age %s", got)
		}
		p.told(5, 12345, 5)
		if got := age(5); got != -1 {
			t.Errorf("a tick that names the reply of another process: age %s", got)
		}
		time.Sleep(10 * time.Second) // the next tick is delayed
		last := p.told(5, first, 5)
		if got := age(5); got != 10*time.Second {
			t.Errorf("a late tick: age %s, want 10s", got)
		}
		p.told(9, last, 7) // this server lacks entries that the leader had
		time.Sleep(time.Second)
		if got := age(7); got != 11*time.Second {
			t.Errorf("behind: age %s, want 11s", got)
		}
		if got := age(9); got != time.Second {
			t.Errorf("caught up behind the tick: age %s, want 1s", got)
		}
		for range 100 { // each tick finds this server a little behind
			now := time.Now()
			last = p.told(uint64(time.Since(began)), last, uint64(time.Since(began))-1)
			time.Sleep(time.Second)
			if got := age(uint64(time.Since(began))); got > time.Since(now)+time.Second {
				t.Fatalf("a busy leader: age %s", got)
			}
		}
	})
}
