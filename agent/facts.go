package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Defaults for a role check whose spec has no interval or no timeout.
const (
	roleInterval = 5 * time.Second
	roleTimeout  = 2 * time.Second
)

// These limit how often changes of one instance's facts are reported. All instances of a node share one limit on
// reports, and one instance must not use up the shared limit.
const (
	factsEvery = time.Second // time after which one more change may be reported
	factsBurst = 5           // changes that may be reported without a pause
)

// confirmations is the number of intervals after which a fact is withdrawn if no answer has confirmed it.
const confirmations = 3

// asker asks an instance's role check once, and gives up after the check's timeout. It is nil for a group without a
// role check.
type asker func(ctx context.Context) (facts, error)

func newAsker(v values, a transport.Assignment, run runner) asker {
	if a.Spec == nil || a.Spec.RoleCheck == nil {
		return nil
	}
	c := *a.Spec.RoleCheck
	limit := orElse(asDuration(c.Timeout), roleTimeout)
	ask := func(ctx context.Context) ([]byte, error) { return askRolePort(ctx, c, a.Ports, v) }
	if len(c.Exec) > 0 {
		ask = func(ctx context.Context) ([]byte, error) { return askRoleCommand(ctx, c, v, run) }
	}
	return func(ctx context.Context) (facts, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		text, err := ask(ctx)
		if err != nil {
			return nil, plain(ctx, model.Duration(limit.Milliseconds()), err)
		}
		return parseFacts(text)
	}
}

func askRoleCommand(ctx context.Context, c model.RoleCheckSpec, v values, run runner) ([]byte, error) {
	argv, err := v.expandAll("command of the role check, word", c.Exec)
	if err != nil {
		return nil, err
	}
	// Keep one byte more than an answer may have, so that parseFacts refuses a longer answer.
	said, complaint := &prefix{left: maxFactsText + 1}, &prefix{left: execOutput}
	code, err := run(ctx, driver.Command{Argv: argv, Stdout: said, Stderr: complaint})
	switch {
	case err != nil:
		return nil, err
	case code != 0:
		return nil, exitError(code, complaint.String())
	}
	return []byte(said.String()), nil
}

func askRolePort(ctx context.Context, c model.RoleCheckSpec, ports map[string]int, v values) ([]byte, error) {
	port, known := ports[c.Port]
	if !known {
		return nil, fmt.Errorf("the group has no port %q", c.Port)
	}
	path, err := v.expand("path of the role check", c.Path)
	if err != nil {
		return nil, err
	}
	status, body, err := getHTTP(ctx, hostPort(v.node.address, port), path, maxFactsText+1)
	switch {
	case err != nil:
		return nil, err
	case status < 200 || status > 299:
		return nil, fmt.Errorf("status %d", status)
	}
	return body, nil
}

func orElse(d, fallback time.Duration) time.Duration {
	if d <= 0 {
		return fallback
	}
	return d
}

// roleWatch repeatedly asks the role check of one program, and sends the facts to out when they have changed. If
// changes are too frequent, it delays them. Newer facts replace facts that are delayed or not received yet. Safe for
// concurrent use.
type roleWatch struct {
	out      chan facts // capacity 1
	ask      asker
	interval time.Duration
	log      hclog.Logger
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu      sync.Mutex
	known   facts
	told    facts // the facts that were last put into out
	pace    pace
	late    *time.Timer // sends delayed facts
	asked   uint64      // number of questions that have begun
	taken   uint64      // number of the newest question whose answer was used
	expiry  *time.Timer // withdraws the facts
	failure string      // error of the last question; "" if it was answered
}

// watchRole starts a roleWatch. No fact is known before the first answer. If ask is nil, the watch does nothing. The
// caller must call stop.
func watchRole(ctx context.Context, c *model.RoleCheckSpec, ask asker, log hclog.Logger) *roleWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &roleWatch{
		out: make(chan facts, 1), ask: ask, log: log, cancel: cancel, pace: pace{every: factsEvery, burst: factsBurst},
	}
	if ask == nil {
		return w
	}
	w.interval = max(orElse(asDuration(c.Interval), roleInterval), 10*time.Millisecond)
	w.expiry, w.late = time.AfterFunc(maxWait, w.withdraw), time.AfterFunc(maxWait, w.catchUp)
	w.wg.Go(func() { w.run(ctx) })
	return w
}

// stop stops the watch and waits until its goroutine has returned. It may be called again.
func (w *roleWatch) stop() {
	w.cancel()
	w.wg.Wait()
	if w.expiry != nil {
		w.expiry.Stop()
		w.late.Stop()
	}
}

// run asks once per interval. Before the first answer it asks more often, so that the interval doesn't delay that
// answer.
func (w *roleWatch) run(ctx context.Context) {
	pause := min(firstProbe, w.interval)
	for ctx.Err() == nil {
		if _, err := w.fresh(ctx); err == nil {
			pause = w.interval
		}
		sleep(ctx, pause, nil)
		pause = min(2*pause, w.interval)
	}
}

// fresh asks the role check now, and returns its facts. The watch uses the answer like those to its own questions.
// fresh returns an error if the group has no role check, or if the check fails.
func (w *roleWatch) fresh(ctx context.Context) (facts, error) {
	if w.ask == nil {
		return nil, errors.New("the group has no role check")
	}
	w.mu.Lock()
	w.asked++
	number, began := w.asked, time.Now()
	w.mu.Unlock()
	found, err := w.ask(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	w.record(number, began, found, err)
	return found, err
}

// record records the result of a question that has this number and that began at the time began. It ignores the answer
// if a later question has been answered already.
func (w *roleWatch) record(number uint64, began time.Time, found facts, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		if w.failure != err.Error() {
			w.log.Warn("role check failed", "error", err)
		}
		w.failure = err.Error()
		return
	}
	if w.failure != "" {
		w.log.Info("role check answers again")
	}
	w.failure = ""
	if number < w.taken {
		return
	}
	w.taken = number
	w.expiry.Reset(confirmations*w.interval - time.Since(began))
	w.tell(found)
}

// withdraw withdraws all facts. The timer expiry calls it after three intervals without an answer; see confirmations.
func (w *roleWatch) withdraw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.known) > 0 {
		w.log.Warn("facts are withdrawn: they could not be confirmed", "intervals", confirmations)
	}
	w.tell(nil)
}

// tell replaces the known facts with found and, if they differ, sends or delays them as deliver does. The caller holds
// w.mu.
func (w *roleWatch) tell(found facts) {
	if maps.Equal(w.known, found) {
		return
	}
	w.known = found
	w.deliver()
}

// catchUp sends facts that deliver has delayed.
func (w *roleWatch) catchUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deliver()
}

// deliver puts the known facts into out, unless they equal the facts that it put there last. If changes are too
// frequent, it sets a timer instead, after which catchUp tries again. The caller holds w.mu.
func (w *roleWatch) deliver() {
	if maps.Equal(w.known, w.told) {
		return
	}
	if wait := w.pace.take(time.Now()); wait > 0 {
		w.late.Reset(wait)
		return
	}
	w.told = w.known
	select { // newer facts replace those that were not received
	case <-w.out:
	default:
	}
	w.out <- w.known
}

// unmetGate asks the role check, and returns why one of the gates doesn't hold. It returns "" if all gates hold.
// Without gates it returns "" and asks nothing. An unknown fact never satisfies a gate.
func unmetGate(ctx context.Context, gates []string, ask asker) string {
	if len(gates) == 0 {
		return ""
	}
	var known facts
	trouble := ""
	if ask == nil {
		trouble = "; the group has no role check"
	} else if found, err := ask(ctx); err != nil {
		trouble = "; role check: " + err.Error()
	} else {
		known = found
	}
	for _, text := range gates {
		gate, refusal := model.ParseGate(text)
		if refusal == nil {
			refusal = gate.HoldsFor(known)
		}
		if refusal != nil {
			return refusal.Message + trouble
		}
	}
	return ""
}
