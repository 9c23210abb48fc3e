package agent

import (
	"cmp"
	"slices"
	"time"

	"github.com/outspan/outspan/model"
)

// factsPatience is how long changes of facts alone wait for changes of observed states, which are sent first. After
// that both kinds are sent in the order in which they began to wait, so that neither can hold up the other.
const factsPatience = 5 * time.Second

// turn decides when the changes of an instance are reported. Its generations are those of statuses.
type turn struct {
	since    time.Time // when the oldest change that the servers lack began to wait
	observed uint64    // generation of the newest status that changed more than facts
	told     uint64    // newest generation that the servers have, possibly without its facts
}

// place orders the changes of instances: the earliest place is sent first.
func (t turn) place() time.Time {
	if t.observed > t.told {
		return t.since.Add(-factsPatience)
	}
	return t.since
}

// queue records that the status s replaces old. r.mu is held.
func (r *reporter) queue(old, s model.InstanceStatus) {
	t := r.turns[s.ID]
	if old.Generation <= r.acked[s.ID] {
		t.since = time.Now()
	}
	if !sameButFacts(old, s) {
		t.observed = s.Generation
	}
	r.turns[s.ID] = t
}

// requeue makes the reporter report an instance as if the servers had no status of it. r.mu is held.
func (r *reporter) requeue(id model.InstanceID) {
	delete(r.acked, id)
	if t, ok := r.turns[id]; ok {
		r.turns[id] = turn{since: time.Now(), observed: t.observed}
	}
}

// acknowledge records that the servers accepted a report with the status s. If the facts of s were left out, s is still
// due. r.mu is held.
func (r *reporter) acknowledge(s model.InstanceStatus) {
	latest, known := r.latest[s.ID]
	if !known {
		return
	}
	t := r.turns[s.ID]
	t.told = max(t.told, s.Generation)
	if s.Facts == nil && len(latest.Facts) > 0 && s.Generation == latest.Generation { // the facts did not fit
		delete(r.acked, s.ID)
	} else {
		r.acked[s.ID] = max(r.acked[s.ID], s.Generation)
		t.since = time.Now()
	}
	r.turns[s.ID] = t
}

// byTurn sorts statuses by place. r.mu is held.
func (r *reporter) byTurn(list []model.InstanceStatus) {
	slices.SortFunc(list, func(a, b model.InstanceStatus) int {
		return cmp.Or(r.turns[a.ID].place().Compare(r.turns[b.ID].place()), cmp.Compare(a.ID, b.ID))
	})
}

// sameButFacts reports whether two statuses of an instance differ in nothing but facts.
func sameButFacts(a, b model.InstanceStatus) bool {
	sameHook := a.Hook == b.Hook || a.Hook != nil && b.Hook != nil && *a.Hook == *b.Hook
	return a.Observed == b.Observed && a.Reason == b.Reason && equal(a.ExitCode, b.ExitCode) &&
		a.Restarts == b.Restarts && sameHook
}

// pace allows burst events at once, and after that one event in each interval of length every. The zero value allows
// every event.
type pace struct {
	every time.Duration
	burst int
	full  time.Time // when the whole burst is available again
}

// take returns 0 and counts an event if it is allowed now. Otherwise it returns how long to wait.
func (p *pace) take(now time.Time) time.Duration {
	if p.full.Before(now) {
		p.full = now
	}
	if wait := p.full.Sub(now) - time.Duration(p.burst-1)*p.every; wait > 0 {
		return wait
	}
	p.full = p.full.Add(p.every)
	return 0
}
