package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/outspan/outspan/model"
)

// settleTime is how long a program without checks must run before it counts as ready. So a program that ends at once
// never counts as ready. Its end may become known late, if the machine is busy or the program left others running;
// therefore its state is read again after that time.
const settleTime = 300 * time.Millisecond

// firstProbe is the pause after the first probe of a program. It doubles up to the check's interval while the program
// is neither ready nor known to fail. So readiness is seen soon, whatever the interval is.
const firstProbe = 50 * time.Millisecond

var errEnded = errors.New("the program has ended")

// prober makes one check once. It returns nil if the check passes. It returns soon after ctx ends.
type prober func(ctx context.Context, c model.CheckSpec) error

// verdict is what the checks of an instance say together.
type verdict struct {
	ready  bool
	reason string // why not: the first failing check and what it said; "" while nothing is known to be wrong
	// overdue is the failure of the first check that has failed for longer than its restart_after; "" if none has.
	overdue string
}

// readiness runs the checks of one program and sends each change of their verdict. A newer verdict replaces one that
// was not taken yet.
type readiness struct {
	out    chan verdict // capacity 1
	alive  func() bool  // whether the program itself runs
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	passed []bool
	failed []string // by check: what it said when it failed too often
	late   []bool   // by check: it has failed for longer than its restart_after
	last   verdict
}

// watchReadiness starts the checks. A program that is not alive never becomes ready. assumed says that an earlier
// agent saw the program ready: it stays ready until a check has failed as often as its limit. The caller must call
// stop.
func watchReadiness(ctx context.Context, checks []model.CheckSpec, probe prober, alive func() bool,
	assumed bool) *readiness {
	ctx, cancel := context.WithCancel(ctx)
	w := &readiness{out: make(chan verdict, 1), alive: alive, cancel: cancel, passed: make([]bool, len(checks)),
		failed: make([]string, len(checks)), late: make([]bool, len(checks))}
	w.last = verdict{ready: assumed}
	for i := range w.passed {
		w.passed[i] = assumed
	}
	if len(checks) == 0 {
		w.wg.Add(1)
		go func() {
			defer w.wg.Done()
			for sleep(ctx, settleTime, nil) {
				if w.alive() {
					w.judge()
					return
				}
			}
		}()
	}
	for i, c := range checks {
		w.wg.Add(1)
		go func() {
			defer w.wg.Done()
			w.watch(ctx, i, c, probe)
		}()
	}
	return w
}

// watchNothing returns checks that never report, for a program whose spec is unknown or that is about to end.
func watchNothing() *readiness { return &readiness{out: make(chan verdict), cancel: func() {}} }

// stop ends the checks and waits for them. It may be called again.
func (w *readiness) stop() {
	w.cancel()
	w.wg.Wait()
}

func (w *readiness) watch(ctx context.Context, i int, c model.CheckSpec, probe prober) {
	began := time.Now()
	passes, fails := 0, 0
	var ill time.Time // when its failures in a row reached the limit
	interval := max(asDuration(c.Interval), 10*time.Millisecond)
	pause := min(firstProbe, interval)
	if w.isPassing(i) { // it passed under an earlier agent, so it needs no quick first probes
		pause = interval
	}
	for ctx.Err() == nil {
		err := ask(ctx, c, probe)
		if ctx.Err() != nil {
			return
		}
		if err == nil && !w.isPassing(i) && !w.alive() {
			err = errEnded
		}
		switch {
		case err == nil:
			passes, fails = passes+1, 0
			if passes >= max(c.Successes, 1) {
				w.set(i, true, "")
				pause = interval
			}
		case w.isPassing(i) || time.Since(began) >= asDuration(c.Grace):
			passes, fails = 0, fails+1
			pause = interval
			if fails < max(c.Failures, 1) {
				break
			}
			w.set(i, false, c.Name+": "+err.Error())
			if fails == max(c.Failures, 1) {
				ill = time.Now()
			}
			if c.RestartAfter > 0 && time.Since(ill) >= asDuration(c.RestartAfter) {
				w.setLate(i)
			}
		default: // in its grace
			passes = 0
		}
		sleep(ctx, pause, nil)
		pause = min(2*pause, interval)
	}
}

// ask probes once, bounded by the check's timeout.
func ask(ctx context.Context, c model.CheckSpec, probe prober) error {
	ctx, cancel := context.WithTimeout(ctx, max(asDuration(c.Timeout), 10*time.Millisecond))
	defer cancel()
	return probe(ctx, c)
}

func (w *readiness) isPassing(i int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.passed[i]
}

func (w *readiness) set(i int, passed bool, reason string) {
	w.mu.Lock()
	same := w.passed[i] == passed && (w.failed[i] == "") == (reason == "")
	if !same {
		w.passed[i], w.failed[i] = passed, reason
	}
	w.mu.Unlock()
	if !same {
		w.judge()
	}
}

// setLate notes that a check has failed for longer than its restart_after.
func (w *readiness) setLate(i int) {
	w.mu.Lock()
	w.late[i] = true
	w.mu.Unlock()
	w.judge()
}

// judge sends the verdict if it changed.
func (w *readiness) judge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := verdict{ready: true}
	for i, passed := range w.passed {
		v.ready = v.ready && passed
		if v.reason == "" {
			v.reason = w.failed[i]
		}
		if v.overdue == "" && w.late[i] {
			v.overdue = w.failed[i]
		}
	}
	if v == w.last {
		return
	}
	w.last = v
	select { // a newer verdict replaces one that was not taken
	case <-w.out:
	default:
	}
	w.out <- v
}
