package reconcile

import (
	"fmt"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

const (
	retryDelay = 5 * model.Second // delay before the second replacement in a row; doubled for each further one
	retryMax   = model.Hour       // longest delay, unless the interval of the reschedule block is longer
)

// retry says when a group may replace a failed instance again. While there are no more failures than the reschedule
// block has attempts, the delay is short and grows. After that, the instance stays failed for the block's interval, so
// that people see it. The interval doubles with each further failure (P26).
type retry struct {
	at       model.Time // when the next replacement may be made; 0 means at once
	failures int        // the version's failures; each is kept for half an hour, or for the interval if longer
	limited  bool       // there are more failures than attempts
}

// retryOf returns when a failed instance may be replaced by an instance of the version. It counts the version's
// recorded failures and its instances whose start is overdue. If node is not "", it counts only those on that node,
// because each node of a system group has its own retries.
func (p *pass) retryOf(g *groupView, version uint64, node model.NodeID) retry {
	key := retryKey{version, node}
	if r, ok := g.retries[key]; ok {
		return r
	}
	times := p.overdueSince(g, version, node)
	for _, f := range g.row.Failures {
		if f.Version == version && f.Reason != goneFromNode && (node == "" || f.Node == node) {
			times = append(times, f.At)
		}
	}
	limit, r, last := g.spec.Reschedule, retry{failures: len(times)}, model.Time(0)
	for _, at := range times {
		last = max(last, at)
	}
	switch {
	case r.failures > limit.Attempts:
		r.limited = true
		r.at = last.Add(doubled(limit.Interval, r.failures-limit.Attempts-1))
	case r.failures > 1:
		r.at = last.Add(doubled(retryDelay, r.failures-2))
	}
	if g.retries == nil {
		g.retries = map[retryKey]retry{}
	}
	g.retries[key] = r
	return r
}

type retryKey struct {
	version uint64
	node    model.NodeID
}

// overdueSince lists the start deadlines of instances of a version that are overdue now. If node is not "", it lists
// only those of instances on that node.
func (p *pass) overdueSince(g *groupView, version uint64, node model.NodeID) []model.Time {
	var times []model.Time
	for _, slot := range g.open {
		for _, inst := range [...]*fsm.Instance{slot.holder, slot.successor} {
			if inst != nil && inst.Version == version && (node == "" || inst.Node == node) && p.startOverdue(inst) {
				times = append(times, p.startDeadline(inst))
			}
		}
	}
	return times
}

// doubled returns d doubled n times, at most retryMax unless d itself is longer.
func doubled(d model.Duration, n int) model.Duration {
	for range n {
		if d >= retryMax {
			return d
		}
		d = min(2*d, retryMax)
	}
	return d
}

// mayRetry reports whether old, a failed instance, may be replaced now by an instance of the version. If not, it
// records the reason.
func (p *pass) mayRetry(g *groupView, version uint64, old *fsm.Instance) bool {
	node := model.NodeID("")
	if g.system() {
		node = old.Node
	}
	r := p.retryOf(g, version, node)
	if p.reached(r.at) {
		return true
	}
	left := r.at.Left(p.in.Now)
	if r.limited {
		text := fmt.Sprintf("%d instances of version %d of %s failed, more than the %d that are replaced in "+
			"%s; next try in %s", r.failures, version, g.id, g.spec.Reschedule.Attempts, g.spec.Reschedule.Interval, left)
		p.block(old, model.CodeRetryLimit, text,
			unblockPlacement(model.CodeRetryLimit)+"; to try at once: outspan instance restart "+string(old.ID))
	} else {
		p.wait(old, model.CodeReplacementPending, fmt.Sprintf("it failed; its replacement is tried in %s", left), "")
	}
	return false
}
