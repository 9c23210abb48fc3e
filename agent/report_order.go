package agent

import (
	"cmp"
	"slices"
	"time"

	"github.com/outspan/outspan/model"
)

// factsPatience bounds how long changes of facts alone wait for changes of observed states. A change of an observed
// state is sent first, unless the change of facts is older by more than factsPatience.
const factsPatience = 5 * time.Second

// turn decides when the changes of an instance are reported.
type turn struct {
	since    time.Time // time of the oldest change that the servers lack
	observed uint64    // generation of the newest status that changed more than facts
	told     uint64    // newest generation of a status that the servers have, possibly without its facts
}

// place returns the position of the instance's changes in the order of reports. The earliest place is sent first.
func (t turn) place() time.Time {
	if t.observed > t.told {
		return t.since.Add(-factsPatience)
	}
	return t.since
}

// queue records that the status s replaces old. The caller holds r.mu.
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

// requeue makes the reporter report an instance as if the servers had no status of it. The caller holds r.mu.
func (r *reporter) requeue(id model.InstanceID) {
	delete(r.acked, id)
	if t, ok := r.turns[id]; ok {
		r.turns[id] = turn{since: time.Now(), observed: t.observed}
	}
}

// acknowledge records that the servers accepted a report with the status s. The caller holds r.mu.
func (r *reporter) acknowledge(s model.InstanceStatus) {
	latest, known := r.latest[s.ID]
	if !known {
		return
	}
	t := r.turns[s.ID]
	t.told = max(t.told, s.Generation)
	if s.Facts == nil && len(latest.Facts) > 0 && s.Generation == latest.Generation {
		delete(r.acked, s.ID) // s was sent without its facts, so it must be sent again
	} else {
		r.acked[s.ID] = max(r.acked[s.ID], s.Generation)
		t.since = time.Now()
	}
	r.turns[s.ID] = t
}

// byTurn sorts statuses by place. The caller holds r.mu.
func (r *reporter) byTurn(list []model.InstanceStatus) {
	slices.SortFunc(list, func(a, b model.InstanceStatus) int {
		return cmp.Or(r.turns[a.ID].place().Compare(r.turns[b.ID].place()), cmp.Compare(a.ID, b.ID))
	})
}

// sameButFacts reports whether two statuses of an instance are the same, apart from facts and generations.
func sameButFacts(a, b model.InstanceStatus) bool {
	sameHook := a.Hook == b.Hook || a.Hook != nil && b.Hook != nil && *a.Hook == *b.Hook
	return a.Observed == b.Observed && a.Reason == b.Reason && equal(a.ExitCode, b.ExitCode) &&
		a.Restarts == b.Restarts && sameHook
}

// pace limits the rate of events. It allows a number of events (burst) at once, and after that one event in each
// interval (every). The zero value allows all events.
type pace struct {
	every time.Duration
	burst int
	full  time.Time // when the whole burst is available again
}

// take records an event and returns 0, if the event is allowed at the given time. Otherwise it returns how long to
// wait.
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
