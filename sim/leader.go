package sim

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

const (
	firstPause = 50   // pause after the first refusal, in ms; each further refusal in a row doubles it
	longPause  = 5000 // longest pause, in ms
	inFlight   = 16   // most entries that wait for their outcome at once
)

// leader makes decisions and proposes them as reconcile.Loop does. It decides on the committed state plus its own
// proposals that are not committed yet. After a refusal, it waits for all outcomes before it decides again.
type leader struct {
	w     *world
	id    int
	term  uint64
	since model.Time // true time at which its term began
	base  model.Time // cluster time when its term began

	flights []*flight
	queue   []fsm.Entry
	basis   *fsm.State // state on which the entries in queue were decided
	settle  bool       // set after a refusal, until all outcomes are known
	pause   model.Duration
	next    model.Time // true time of the next decision; 0 means that none is planned
}

// flight is an entry that was proposed and has no outcome yet.
type flight struct{ entry fsm.Entry }

func newLeader(w *world, id int, term uint64, base model.Time) *leader {
	return &leader{w: w, id: id, term: term, since: w.now, base: base}
}

func (l *leader) leads() bool { return l.w.lead == l }

// clock returns the cluster time. It advances with true time from base, and is never before the last committed entry.
func (l *leader) clock() model.Time {
	return max(l.base.Add(l.w.now.Sub(l.since)), l.w.log.first.Now)
}

// poke makes the leader decide soon, because something changed.
func (l *leader) poke() { l.wake(l.w.now.Add(between(l.w.chance, 2, 12))) }

// wake plans the next decision for the true time at. If a decision is already planned for that time or earlier, wake
// does nothing.
func (l *leader) wake(at model.Time) {
	if l.next != 0 && l.next <= at {
		return
	}
	l.next = at
	l.w.events.push(at, func() {
		if l.leads() && l.next == at {
			l.next = 0
			l.turn()
		}
	})
}

// turn is one round of the leader's loop.
func (l *leader) turn() {
	if l.settle {
		if len(l.flights) > 0 {
			return // the last outcome wakes the leader
		}
		l.settle = false
		l.wake(l.w.now.Add(l.pause))
		return
	}
	wake := model.Never
	if len(l.queue) == 0 {
		wake = l.decide()
	}
	l.submit()
	if l.next == 0 && wake != model.Never && l.w.failure == nil {
		l.wake(l.w.now.Add(max(wake.Sub(l.clock()), 2)))
	}
}

func (l *leader) input() reconcile.Input {
	now := l.clock()
	return reconcile.Input{State: l.ahead(now), Live: l.w.net.live(l), Now: now, Term: l.term}
}

func (l *leader) decide() model.Time {
	in := l.input()
	plan := reconcile.Decide(in)
	l.w.counts[CountDecisions]++
	l.w.trace.note(l.w.now, 'd', uint64(len(plan.Entries)), uint64(len(plan.Refused)), uint64(plan.Wake))
	l.w.judge.plan(in, plan)
	l.queue, l.basis = plan.Entries, &in.State
	return plan.Wake
}

// ahead returns the committed state plus the leader's proposals that have no outcome yet.
func (l *leader) ahead(now model.Time) fsm.State {
	if len(l.flights) == 0 {
		return l.w.log.first
	}
	l.w.counts[CountAhead]++
	draft := l.w.log.first.NewDraft(now)
	for _, f := range l.flights {
		for _, group := range f.entry.Groups {
			_ = draft.Try(group...) // a refused group changes nothing
		}
	}
	return *draft.State()
}

func (l *leader) submit() {
	for len(l.queue) > 0 && len(l.flights) < inFlight && !l.settle {
		f := &flight{entry: l.queue[0]}
		l.queue = l.queue[1:]
		f.entry.Wall = l.w.wall()
		l.flights = append(l.flights, f)
		l.w.log.propose(&proposal{entry: f.entry, basis: l.basis, done: func(o outcome) { l.land(f, o) }})
	}
}

// land takes the outcome of a flight. A refusal means that the plan assumed another state, so the entries in queue are
// dropped.
func (l *leader) land(f *flight, o outcome) {
	for i, other := range l.flights {
		if other == f {
			l.flights = append(l.flights[:i:i], l.flights[i+1:]...)
			break
		}
	}
	if !o.known || !l.leads() {
		return
	}
	refused := false
	for i, r := range o.results {
		if r.Refusal != nil {
			refused = true
			l.w.counts[CountPlanRefused]++
			l.w.trace.say("  refused group %d of the plan: %v", i, r.Refusal)
		}
	}
	if refused {
		l.queue, l.settle = nil, true
		l.pause = min(max(2*l.pause, firstPause), longPause)
	} else {
		l.pause = 0
	}
	l.poke()
}

// undecided returns the entries that were proposed or are in the queue, and are not known to be committed.
func (l *leader) undecided() []fsm.Entry {
	var left []fsm.Entry
	for _, f := range l.flights {
		left = append(left, f.entry)
	}
	return append(left, l.queue...)
}
