package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/outspan/outspan/model"
)

// settleTime is how long a program without checks must run before it is ready, so that a program that exits at once
// never becomes ready. After this time the agent checks that the main process is alive, because it may not have noticed
// an exit yet: the machine may be busy, or the program may have left other processes running.
const settleTime = 300 * time.Millisecond

// firstProbe is the pause after the first probe of a check. Each later pause is twice as long, up to the check's
// interval. Once the check passes, or fails after its grace, every pause is the interval. So the agent soon sees that a
// program is ready, even if the interval is long.
const firstProbe = 50 * time.Millisecond

var errEnded = errors.New("the program has ended")

// prober makes one probe of a check. It returns nil if the probe succeeds, and returns soon after ctx ends.
type prober func(ctx context.Context, c model.CheckSpec) error

// verdict is the combined result of an instance's checks.
type verdict struct {
	ready  bool
	reason string // the name and error of the first check that fails; "" if none has failed often enough
	// overdue is the error of the first check that has failed for longer than its restart_after; "" if no check has.
	overdue string
}

// readiness runs the checks of one program and sends each change of their verdict. A newer verdict replaces one that
// was not received yet.
type readiness struct {
	out    chan verdict // capacity 1
	alive  func() bool
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	passed []bool
	failed []string // for each check: its error after Failures failures in a row, otherwise ""
	late   []bool   // for each check: whether it has failed for longer than its restart_after
	last   verdict
}

// watchReadiness starts the checks. A program does not become ready while alive returns false. If assumed is true, an
// earlier agent saw the program ready, and it stays ready until a check has failed Failures times in a row. The caller
// must call stop.
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

// watchNothing returns a readiness without checks, which never sends a verdict.
func watchNothing() *readiness { return &readiness{out: make(chan verdict), cancel: func() {}} }

// stop stops the checks and waits for their goroutines. A second call does nothing.
func (w *readiness) stop() {
	w.cancel()
	w.wg.Wait()
}

func (w *readiness) watch(ctx context.Context, i int, c model.CheckSpec, probe prober) {
	began := time.Now()
	passes, fails := 0, 0
	var ill time.Time // when the check reached its number of failures in a row
	interval := max(asDuration(c.Interval), 10*time.Millisecond)
	pause := min(firstProbe, interval)
	if w.isPassing(i) { // the check passed under an earlier agent, so it needs no quick first probes
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
		default: // a failure within the check's grace
			passes = 0
		}
		sleep(ctx, pause, nil)
		pause = min(2*pause, interval)
	}
}

// ask makes one probe, bounded by the check's timeout.
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
	w.late[i] = w.late[i] && !passed // a restart that was held until now is not needed any more
	w.mu.Unlock()
	if !same {
		w.judge()
	}
}

// setLate records that a check has failed for longer than its restart_after.
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
	select { // drops the previous verdict if nobody has received it
	case <-w.out:
	default:
	}
	w.out <- v
}
