package sim

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

const (
	firstPause = 50 // ms, after a refusal, doubled at each one in a row
	longPause  = 5000
	inFlight   = 16
	retryAfter = 100 // ms
)

// leader decides and proposes as reconcile.Loop does: what is under way is applied to the state that it decides on, and
// after a refusal all outcomes are waited for.
type leader struct {
	w     *world
	id    int
	term  uint64
	since model.Time // true time
	base  model.Time // cluster time at since

	flights []*flight
	queue   []fsm.Entry
	basis   *fsm.State // that the queue was decided on
	settle  bool
	pause   model.Duration
	next    model.Time // when the next decision is due; 0 = none is
}

// flight is an entry under way.
type flight struct{ entry fsm.Entry }

func newLeader(w *world, id int, term uint64, base model.Time) *leader {
	return &leader{w: w, id: id, term: term, since: w.now, base: base}
}

func (l *leader) leads() bool { return l.w.lead == l }

// clock is cluster time by this leader.
func (l *leader) clock() model.Time {
	return max(l.base.Add(l.w.now.Sub(l.since)), l.w.log.first.Now)
}

// poke has it decide soon: something changed.
func (l *leader) poke() { l.wake(l.w.now.Add(between(l.w.chance, 2, 12))) }

// wake has it decide at a time, unless it does earlier.
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

// turn is one round of the loop.
func (l *leader) turn() {
	if l.settle {
		if len(l.flights) > 0 {
			return // the last one to land wakes it
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

// input is what a decision is made on now.
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

// ahead is the state with what is under way applied to it.
func (l *leader) ahead(now model.Time) fsm.State {
	if len(l.flights) == 0 {
		return l.w.log.first
	}
	l.w.counts[CountAhead]++
	draft := l.w.log.first.NewDraft(now)
	for _, f := range l.flights {
		for _, group := range f.entry.Groups {
			_ = draft.Try(group...) // refused where it is in the state already
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

// land takes the outcome of a flight. A refusal means that the state was not what the plan rested on.
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

// undecided is what was planned or under way and is not known to be committed.
func (l *leader) undecided() []fsm.Entry {
	var left []fsm.Entry
	for _, f := range l.flights {
		left = append(left, f.entry)
	}
	return append(left, l.queue...)
}
