package reconcile

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

const (
	firstPause = 50 * time.Millisecond // first pause after a refusal or failed write; doubled for each further one
	// longest pause after stale refusals, which are frequent under load: each only means that another write came first
	stalePause = 200 * time.Millisecond
	longPause  = 5 * time.Second // longest pause after other refusals and after failed writes
	longSleep  = time.Hour       // the timer is never set to a longer time

	// After a decision that planned nothing, the loop rests this many times as long as the decision took. So decisions
	// that find nothing take about a tenth of the time.
	idleRest = 9
	longRest = 100 * time.Millisecond // upper bound of the rest after a decision that planned nothing

	// The rescheduler begins no moves for this long after a Loop was made, because work that the last leader left
	// unfinished is more urgent.
	balanceFirst = 5 * time.Second
	// After a decision in which the rescheduler took part, it pauses for this many times as long as that decision took.
	// Such a decision takes 100 ms for groups of 10,000, and placements and drains need the time more.
	balanceRest = 20
)

// States returns the published state, and a channel that is closed when a newer state is published. *fsm.Machine
// implements it.
type States interface {
	Watch() (fsm.State, <-chan struct{})
}

// Evidence is the leader's clock and its evidence about nodes. The channel from LiveChanged is closed when Live has
// changed. Call LiveChanged before Live, so that no change is missed. No method blocks.
type Evidence interface {
	Now() model.Time
	Live() map[model.NodeID]fsm.Liveness
	LiveChanged() <-chan struct{}
}

// Log writes entries to the replicated log. It keeps the order in which one goroutine submits entries.
type Log interface {
	Submit(ctx context.Context, e fsm.Entry) (Outcome, error)
}

// Outcome is the future result of a submitted entry. Wait blocks until the entry is applied on this server or ctx is
// done. It returns the result of each group, or an error if the entry was not committed or its outcome is unknown.
type Outcome interface {
	Wait(ctx context.Context) ([]fsm.Result, error)
}

// Report describes one decision, or an entry that was not applied as planned.
type Report struct {
	Took    time.Duration // time that Decide took; 0 in the report of an outcome
	Plan    Plan
	Refused []*model.Error // groups that the log refused although the draft had accepted them
	Skipped []Skip         // planned groups that the log can never accept
	Err     error          // why an entry was not committed, or why its outcome is unknown
}

// Config is what a Loop needs.
type Config struct {
	States   States
	Evidence Evidence
	Log      Log
	Term     uint64 // the term in which this server leads; the log refuses entries of other terms
	// Least time between two decisions; 0 means 2 ms. A longer gap combines a burst of changes into fewer and later
	// decisions.
	Gap      time.Duration
	InFlight int // maximum number of entries that are submitted and not yet applied; 0 means 16
	// Called by the loop's goroutine after each decision, each skipped group, and each refused or failed entry. May be
	// nil.
	Reports func(Report)
}

// Loop makes decisions and proposes them while its server leads. It keeps nothing that the next leader would need.
type Loop struct {
	cfg     Config
	flights []*flight     // submitted entries, in order
	queue   []fsm.Entry   // planned entries that are not submitted yet; they assume that all flights are applied
	landed  chan *flight  // flights that have an outcome
	settle  bool          // set after an error or a refusal: wait for all outcomes, then decide on the published state
	pause   time.Duration // length of the pause after the last error or refusal; 0 after a success
	rest    time.Time     // no decision is made before this time
	balance time.Time     // the rescheduler takes no part before this time
	seen    Cache
	last    lastLook
}

// lastLook is what the last decision was based on, and whether it found nothing to do.
type lastLook struct {
	empty bool            // the decision found nothing to do, assuming that the submitted entries are applied
	index uint64          // index of the published state
	own   uint64          // number of entries of this loop that were applied since the decision
	until time.Time       // until when the decision is valid if nothing changes
	live  <-chan struct{} // closed when there is newer evidence
}

// holds reports whether a new decision would again find nothing to do. That is so if the last decision found nothing,
// its wake-up time has not come, and since then only this loop's own entries were applied. Skipping such decisions
// saves 10,000 tries for each applied entry while 10,000 placements are written.
func (k *lastLook) holds(published uint64) bool {
	select {
	case <-k.live:
		return false
	default:
		return k.empty && published == k.index+k.own && time.Now().Before(k.until)
	}
}

// flight is an entry submitted to the log.
type flight struct {
	entry   fsm.Entry
	results []fsm.Result
	err     error
	index   uint64 // index at which the entry was applied; 0 if no index is known
	done    bool
}

// New returns a Loop for one term.
func New(cfg Config) *Loop {
	if cfg.Gap <= 0 {
		cfg.Gap = 2 * time.Millisecond
	}
	if cfg.InFlight <= 0 {
		cfg.InFlight = 16
	}
	if cfg.Reports == nil {
		cfg.Reports = func(Report) {}
	}
	return &Loop{cfg: cfg, landed: make(chan *flight, cfg.InFlight), balance: time.Now().Add(balanceFirst)}
}

// Run makes decisions and proposes them until ctx is done. It returns ctx's cause after its goroutines have returned.
// Call it only once.
func (l *Loop) Run(ctx context.Context) error {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for ctx.Err() == nil {
		state, changed := l.cfg.States.Watch()
		l.forget(state.Index)
		if l.settle && len(l.flights) == 0 {
			l.settle = false
			l.pauseFor(ctx, max(l.pause, time.Until(l.rest)))
			continue // a newer state may have been published meanwhile
		}
		wake := longSleep
		switch {
		case len(l.queue) > 0 || l.settle:
			l.last.empty = false
		case l.last.holds(state.Index):
			wake = time.Until(l.last.until)
		default:
			wake = l.decide(state)
		}
		l.submit(ctx, &waiting)
		live := l.last.live
		if len(l.queue) > 0 || l.settle {
			live = nil // nothing is decided now, so new evidence can wait until the next decision
		}
		l.sleep(ctx, changed, live, wake)
	}
	return context.Cause(ctx)
}

// decide makes a plan on the state as it will be after the submitted entries, and queues the plan's entries. It returns
// how long the plan is valid if nothing changes.
func (l *Loop) decide(state fsm.State) time.Duration {
	began, live := time.Now(), l.cfg.Evidence.LiveChanged()
	now := l.cfg.Evidence.Now()
	turn := !began.Before(l.balance)
	plan := Decide(Input{State: l.ahead(state, now), Live: l.cfg.Evidence.Live(), Now: now, Term: l.cfg.Term,
		Cache: &l.seen, StayPut: !turn})
	l.queue = plan.Entries
	took := time.Since(began)
	l.rest = began.Add(took + restAfter(took, len(plan.Entries) > 0))
	l.cfg.Reports(Report{Took: took, Plan: plan})
	wake := longSleep
	if plan.Wake != model.Never {
		wake = min(time.Duration(max(plan.Wake.Sub(now), 0))*time.Millisecond, longSleep)
	}
	if turn {
		l.balance = began.Add(took + balanceRest*took)
	} else {
		wake = min(wake, time.Until(l.balance))
	}
	l.last = lastLook{empty: len(plan.Entries) == 0, index: state.Index, until: time.Now().Add(wake), live: live}
	return wake
}

// restAfter returns how long the loop rests after a decision, so that changes can gather. took is how long the decision
// took, and busy is true if it planned entries. After a decision that planned nothing the rest is longer, because the
// next one usually finds nothing either. Otherwise, under a full load of single writes, decisions would take half a
// core from the writes.
func restAfter(took time.Duration, busy bool) time.Duration {
	if busy {
		return took
	}
	return min(idleRest*took, longRest)
}

// ahead returns the published state with the submitted entries applied, so that nothing is decided twice. Some of the
// entries may already be part of the published state. Applied again, they are refused or change nothing.
func (l *Loop) ahead(state fsm.State, now model.Time) fsm.State {
	if len(l.flights) == 0 {
		return state
	}
	draft := state.NewDraft(now)
	for _, f := range l.flights {
		for _, group := range f.entry.Groups {
			_ = draft.Try(group...)
		}
	}
	return *draft.State()
}

// submit sends planned entries in order, as long as fewer than InFlight entries are submitted and not yet applied. It
// splits an entry that the log can never accept. After any other error it drops the queued entries.
func (l *Loop) submit(ctx context.Context, waiting *sync.WaitGroup) {
	for len(l.queue) > 0 && len(l.flights) < l.cfg.InFlight && !l.settle {
		f := &flight{entry: l.queue[0]}
		outcome, err := l.cfg.Log.Submit(ctx, f.entry)
		switch refusal := unwritable(err); {
		case refusal != nil:
			l.split(f.entry, refusal)
			continue
		case err != nil:
			l.failed(err)
			return
		}
		l.queue = l.queue[1:]
		l.flights = append(l.flights, f)
		waiting.Go(func() {
			f.results, f.err = outcome.Wait(ctx)
			l.landed <- f // never blocks: the channel has room for every flight
		})
	}
}

// unwritable returns the refusal in err if it means that the log can never accept the entry, for example because the
// entry is too large. Otherwise it returns nil.
func unwritable(err error) *model.Error {
	var refusal *model.Error
	if errors.As(err, &refusal) && (refusal.Code == model.CodeInvalid || refusal.Code == model.CodeNeedsFormat) {
		return refusal
	}
	return nil
}

// split replaces the first entry of the queue, which the log can never accept, by its two halves. An entry of one group
// is skipped. Otherwise every new decision would plan the group again, and everything after it would wait.
func (l *Loop) split(e fsm.Entry, why *model.Error) {
	l.queue = l.queue[1:]
	n := len(e.Groups) / 2
	if n == 0 {
		l.cfg.Reports(Report{Skipped: []Skip{{Group: e.Groups[0], Why: why}}})
		return
	}
	first, second := e, e
	first.Groups, second.Groups = e.Groups[:n:n], e.Groups[n:]
	l.queue = append([]fsm.Entry{first, second}, l.queue...)
}

// failed handles an entry that may be missing from the log. It drops the queued entries, which assume that this one is
// applied, and makes the next pause longer.
func (l *Loop) failed(err error) {
	l.queue, l.settle = nil, true
	l.pause = min(max(2*l.pause, firstPause), longPause)
	l.cfg.Reports(Report{Err: err})
}

// land handles the outcome of a flight. After a refusal or an error, the state may not be as the plan assumed. So land
// drops the queued entries, and the next decision starts from the published state. It ignores an error that came from
// canceling ctx.
func (l *Loop) land(f *flight) {
	f.done = true
	defer l.noteOwn(f)
	var refused []*model.Error
	for _, r := range f.results {
		f.index = max(f.index, r.Index)
		if r.Refusal != nil {
			refused = append(refused, r.Refusal)
		}
	}
	switch {
	case f.err != nil:
		if !errors.Is(f.err, context.Canceled) {
			l.failed(f.err)
		}
	case len(refused) > 0:
		l.queue, l.settle = nil, true
		l.pause = min(max(2*l.pause, firstPause), longestPause(refused))
		l.cfg.Reports(Report{Refused: refused})
	default:
		l.pause = 0
	}
}

// longestPause returns the upper bound of the pause after these refusals. The bound is low only if all of them are
// stale, because such a refusal is explained by another write.
func longestPause(refused []*model.Error) time.Duration {
	if slices.ContainsFunc(refused, func(r *model.Error) bool { return r.Code != model.CodeStale }) {
		return longPause
	}
	return stalePause
}

// noteOwn counts an entry of this loop that was applied after the last decision. After an error or a refusal, it makes
// sure that a new decision is made.
func (l *Loop) noteOwn(f *flight) {
	switch {
	case l.settle:
		l.last.empty = false
	case f.index > l.last.index:
		l.last.own++
	}
}

// forget drops the flights whose outcome is part of the published state, and those that failed.
func (l *Loop) forget(published uint64) {
	left := l.flights[:0]
	for _, f := range l.flights {
		if !f.done || f.err == nil && f.index > published {
			left = append(left, f)
		}
	}
	l.flights = left
}

// sleep waits for a newer state, new evidence, an outcome, or the wake-up time. After that it waits for the gap, or
// until l.rest if that is later and no planned entries are queued. If the loop must settle and has no flights, sleep
// returns at once.
func (l *Loop) sleep(ctx context.Context, changed, live <-chan struct{}, wake time.Duration) {
	if l.settle && len(l.flights) == 0 {
		return // the caller pauses next
	}
	timer := time.NewTimer(max(wake, l.cfg.Gap))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case f := <-l.landed:
		l.land(f)
	case <-changed:
	case <-live:
	case <-timer.C:
	}
	pause := l.cfg.Gap
	if len(l.queue) == 0 { // with entries in the queue, the next step only submits and needs no rest
		pause = max(pause, time.Until(l.rest))
	}
	l.pauseFor(ctx, pause)
}

// pauseFor waits for d or until ctx is done, and meanwhile handles outcomes.
func (l *Loop) pauseFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-l.landed:
			l.land(f)
		case <-timer.C:
			return
		}
	}
}
