package reconcile

import (
	"fmt"

	"github.com/outspan/outspan/fsm"
)

const (
	retryDelay = 5 * fsm.Second // before the second replacement in a row, doubled for each one after it
	retryMax   = fsm.Hour
)

// retry says when a group may try again to replace an instance that failed. Within the limit of the reschedule block the delay is short and grows. Beyond it
// the instance is left failed, for people to see, and tried again after the block's interval, which doubles too (P26).
type retry struct {
	at       fsm.Time
	failures int // of the version within the interval
	limited  bool
}

// retryOf counts the failures of a version, of one node only if node is given: each node of a system group stands for itself.
func (p *pass) retryOf(g *groupView, version uint64, node fsm.NodeID) retry {
	limit := g.spec.Reschedule
	var r retry
	last, kept := fsm.Time(0), 0
	for _, f := range g.row.Failures {
		if f.Version != version || f.Reason == goneFromNode || node != "" && f.Node != node {
			continue
		}
		kept++
		last = max(last, f.At)
		if f.At.Add(limit.Interval) > p.in.Now {
			r.failures++
		}
	}
	switch {
	case kept > limit.Attempts:
		r.limited = true
		r.at = last.Add(doubled(limit.Interval, kept-limit.Attempts-1))
	case kept > 1:
		r.at = last.Add(doubled(retryDelay, kept-2))
	}
	return r
}

// doubled is d doubled n times, at most retryMax unless d itself is longer.
func doubled(d fsm.Duration, n int) fsm.Duration {
	for range n {
		if d >= retryMax {
			return d
		}
		d = min(2*d, retryMax)
	}
	return d
}

// mayRetry reports whether a failed instance of a version may be replaced now, and records on old why not.
func (p *pass) mayRetry(g *groupView, version uint64, old *fsm.Instance) bool {
	node := fsm.NodeID("")
	if g.system() {
		node = old.Node
	}
	r := p.retryOf(g, version, node)
	if p.past(r.at) {
		return true
	}
	left := r.at.Sub(p.in.Now)
	if r.limited {
		text := fmt.Sprintf("%d instances of version %d of %s failed within %s; next try in %s", r.failures, version, g.id, g.spec.Reschedule.Interval, left)
		p.block(old, fsm.CodeRetryLimit, text, unblockPlacement(fsm.CodeRetryLimit))
	} else {
		p.wait(old, fsm.CodeReplacementPending, fmt.Sprintf("it failed; its replacement is tried in %s", left), "")
	}
	return false
}
