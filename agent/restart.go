package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outspan/outspan/agent/bridge"
	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/agent/image"
	"github.com/outspan/outspan/model"
)

// startFailed is the reason of an instance whose program could not be started. Details may follow it.
const startFailed = string(driver.ReasonStartFailed)

// maxRestartDelay is the limit up to which the delay between restarts doubles. A group's own delay above the limit is
// used as it is.
const maxRestartDelay = time.Minute

// failure is the end of a program that should run, or a failed start.
type failure struct {
	code   string
	detail string
	exit   *int
	final  bool // another try is pointless
	free   bool // not the program's fault, so the failure isn't counted, and the restart is immediate
}

// failed handles a failure. It fails the instance if the failure is final, or if there were too many failures;
// otherwise it schedules a restart. Exit code 0 is a failure too, because an instance runs until the servers stop it.
func (i *instance) failed(f failure) {
	var limit model.RestartSpec
	if want := i.wanted(); want.Spec != nil {
		limit = want.Spec.Restart
	}
	reason := f.code
	if f.detail != "" {
		reason += ": " + f.detail
	}
	recent := 0
	if !f.free {
		recent = i.countFailure(limit)
	}
	if f.final || recent > limit.Attempts {
		i.log.Error("instance failed", "reason", reason, "failures", recent)
		i.shared.release(i.id)
		i.observe(model.ObservedFailed, finalReason(f, reason), f.exit)
		return
	}
	delay := time.Duration(0)
	if recent > 0 {
		delay = restartDelay(asDuration(limit.Delay), recent)
	}
	i.retryAt = time.Now().Add(delay)
	i.entry.Restarts++
	i.log.Warn("program is restarted", "reason", reason, "failures", recent, "delay", delay)
	i.observe(i.down(), reason, f.exit)
}

// countFailure records one more failure. It returns how many there were within limit.Interval, including this one.
func (i *instance) countFailure(limit model.RestartSpec) int {
	now := time.Now().UnixMilli()
	var recent []int64
	for _, at := range i.entry.Failures {
		if now-at < int64(limit.Interval) && at <= now {
			recent = append(recent, at)
		}
	}
	i.entry.Failures = slices.Concat(recent, []int64{now})
	return len(i.entry.Failures)
}

// finalReason returns the reason of an instance that is not restarted any more: crash_loop after ordinary exits,
// check_failed after failed checks, otherwise the reason of its last failure.
func finalReason(f failure, reason string) string {
	switch f.code {
	case string(driver.ReasonExited), string(driver.ReasonSignaled):
		return string(model.CauseCrashLoop)
	case string(model.CauseCheckFailed):
		return f.code
	}
	return reason
}

func restartDelay(delay time.Duration, failures int) time.Duration {
	most := max(delay, maxRestartDelay)
	for range failures - 1 {
		if delay *= 2; delay >= most {
			return most
		}
	}
	return min(delay, most)
}

// ended handles the end of a program. If the instance should run, failed decides whether it is restarted.
func (i *instance) ended(task Task) {
	exit, _ := task.Exit()
	i.entry.Live = false
	code := &exit.Code
	if exit.Code < 0 {
		code = nil // the exit code is unknown
	}
	if i.wanted().Desired != model.DesiredRunning {
		i.shared.release(i.id) // first, so that the next instance finds the ports free
		i.observe(model.ObservedStopped, i.stopReason(exit), code)
		return
	}
	i.shared.release(i.id)
	f := failure{code: exit.Reason.String(), exit: code}
	switch exit.Reason {
	case driver.ReasonFenced, driver.ReasonHostRebooted:
		f.free = true
	case driver.ReasonStartFailed:
		f.detail = exit.Message
	case driver.ReasonStopped, driver.ReasonKilled, driver.ReasonKilledAfterGrace: // an earlier agent stopped the program
		f.free = true
	}
	i.failed(f)
}

// endedItself reports whether the program is known to have ended although nobody stopped it.
func (i *instance) endedItself() bool {
	task := i.current()
	if task == nil {
		return false
	}
	exit, known := task.Exit()
	switch exit.Reason {
	case driver.ReasonExited, driver.ReasonSignaled, driver.ReasonOOMKilled, driver.ReasonStartFailed:
		return known
	}
	return false
}

// stopReason returns the reason of a stopped instance; "" means a clean stop.
func (i *instance) stopReason(exit driver.Exit) string {
	switch exit.Reason {
	case driver.ReasonStopped, driver.ReasonExited:
		return ""
	case driver.ReasonKilled:
		if i.entry.Status.Observed == model.ObservedDraining { // the servers ended the grace a moment before the shim did
			return driver.ReasonKilledAfterGrace.String()
		}
	}
	return exit.Reason.String()
}

// bringDown stops the program because the servers no longer want the instance. If gently is true, it first withdraws
// readiness and waits for the drain delay. After that no new connection reaches the program. Then it takes a last look
// at the gates.
func (i *instance) bringDown(ctx context.Context, task Task, gently bool) {
	spent := time.Duration(0)
	if gently {
		i.observe(model.ObservedDraining, "", i.entry.Status.ExitCode)
		i.drainDelay(ctx, task)
		spent = i.lastLook(ctx, task)
	}
	i.stopTask(ctx, task, spent)
	if ended(task) {
		i.ended(task)
	}
}

// abandon stops a program whose after_start hook failed. This counts as a failed start.
func (i *instance) abandon(ctx context.Context, task Task, why error) {
	i.stopAsFailed(ctx, task,
		failure{code: string(model.CodeHookFailed), detail: "after_start: " + message(why), final: hopeless(why)})
}

// restartIll stops a program whose check has failed for too long. The rules for restarts are the same as for a program
// that ended on its own.
func (i *instance) restartIll(ctx context.Context, task Task, why string) {
	i.log.Warn("restarting a program whose check has failed for too long", "check", why)
	i.judge(verdict{reason: why}) // withdraws the instance from its services before the stop
	i.stopAsFailed(ctx, task, failure{code: string(model.CauseCheckFailed), detail: why})
}

// loseNetwork records that the program has lost its network, so that run starts it again with another one. It does not
// block, and may be called from any goroutine.
func (i *instance) loseNetwork(what string) {
	i.setLostNetwork(what)
	i.wake()
}

func (i *instance) setLostNetwork(what string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.netLost = what
}

func (i *instance) lostNetwork() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.netLost
}

// replaceNetwork stops a program whose network is lost. Nobody else can give it another one, and its own checks need
// not notice. The rules for restarts are the same as for a program that ended on its own.
func (i *instance) replaceNetwork(ctx context.Context, task Task, what string) {
	why := failure{code: string(bridge.CodeLost), detail: what}
	i.log.Warn("restarting a container whose network is lost", "missing", what)
	i.observe(i.down(), why.code+": "+what, i.entry.Status.ExitCode) // withdraws it from its services before the stop
	i.stopAsFailed(ctx, task, why)
}

// stopAsFailed stops a program that should run, and handles why as the failure. If the servers stop the instance
// meanwhile, the end of the program is not a failure.
func (i *instance) stopAsFailed(ctx context.Context, task Task, why failure) {
	i.stopTask(ctx, task, 0)
	switch {
	case !ended(task):
	case i.wanted().Desired != model.DesiredRunning:
		i.ended(task)
	default:
		i.shared.release(i.id)
		i.entry.Live = false
		i.failed(why)
	}
}

// restart stops the program, so that run starts it again. A ready instance first becomes unready. restart then waits
// until the servers know that the instance is unready, for at most 5 s, and for the drain delay. If the servers stop
// the instance meanwhile, it stays stopped.
func (i *instance) restart(ctx context.Context, task Task) {
	i.log.Info("restarting as asked")
	seq := i.wanted().RestartSeq
	if i.entry.Status.Observed == model.ObservedReady {
		i.observe(model.ObservedUnready, "restarting", i.entry.Status.ExitCode)
		i.shared.reports.await(ctx, i.id, i.entry.Status.Generation, 5*time.Second)
		i.drainDelay(ctx, task)
	}
	i.stopTask(ctx, task, 0)
	switch {
	case !ended(task):
	case i.wanted().Desired != model.DesiredRunning:
		i.ended(task)
	default:
		i.shared.release(i.id)
		i.entry.RestartSeq, i.entry.Failures, i.retryAt = seq, nil, time.Time{}
		i.entry.Restarts++
		i.setLive(false)
	}
}

// holdRestart returns nil if a running program need not be stopped for a restart in place, or may be. A container is
// not stopped while the runtime does not answer, because it could not be started again: holdRestart then returns a
// channel that tells when to look again. lost is what the container's network lacks, and ill the error of a check that
// has failed for too long.
func (i *instance) holdRestart(ctx context.Context, task Task, lost, ill string) <-chan time.Time {
	want := i.wanted()
	asked := want.RestartSeq > i.entry.RestartSeq || lost != "" || ill != ""
	if !asked || want.Desired != model.DesiredRunning || want.Spec == nil || want.Spec.Container == nil ||
		i.shared.images == nil || ended(task) {
		i.held = ""
		return nil
	}
	timed, cancel := context.WithTimeout(ctx, runtimeFirst)
	defer cancel()
	down := i.shared.images.Runtime(timed).Down
	if ctx.Err() != nil {
		return time.After(runtimeAgain) // the agent stops, so the answer says nothing about the runtime
	}
	if down != "" && i.held == "" {
		i.log.Warn("the container is restarted only once the container runtime answers", "error", down)
	}
	if i.held = down; down == "" {
		return nil
	}
	if lost != "" { // it leaves its services at once
		i.observe(i.down(), string(bridge.CodeLost)+": "+lost, i.entry.Status.ExitCode)
	}
	return time.After(runtimeAgain)
}

// drainDelay waits for the drain delay in the spec. After that no new connection reaches the program. It returns early
// if the program ends or must be killed, or if ctx ends. It does not wait if the spec is not known.
func (i *instance) drainDelay(ctx context.Context, task Task) {
	want := i.wanted()
	if want.Spec == nil {
		return
	}
	t := time.NewTimer(asDuration(want.Spec.Stop.DrainDelay))
	defer t.Stop()
	for i.wanted().Desired != model.DesiredStopped {
		select {
		case <-t.C:
			return
		case <-task.Done():
			return
		case <-ctx.Done():
			return
		case <-i.changed:
		}
	}
}

// stopTask stops the program, and waits until none of its processes is left. spent is how much of the grace is already
// used. If the desired state is or becomes stopped, the program is killed at once. If ctx ends, stopTask returns, and
// the shim completes the stop.
func (i *instance) stopTask(ctx context.Context, task Task, spent time.Duration) {
	var asked sync.WaitGroup
	defer asked.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sig, grace := i.shared.stopPolicy(i.wanted())
	grace = max(grace-spent, min(grace, lastGrace))
	stop := func(grace time.Duration) {
		asked.Go(func() {
			if err := task.Stop(ctx, sig, grace); err != nil && ctx.Err() == nil {
				i.log.Error("program could not be stopped", "error", err)
			}
		})
	}
	kill := i.wanted().Desired == model.DesiredStopped
	if kill {
		grace = 0
	}
	stop(grace)
	for {
		select {
		case <-task.Done():
			return
		case <-ctx.Done():
			return
		case <-i.changed:
		}
		if !kill && i.wanted().Desired == model.DesiredStopped {
			kill = true
			stop(0)
		}
	}
}

// hopeless reports whether a start that failed with err would fail again.
func hopeless(err error) bool {
	var refused *model.Error
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Code {
	case model.CodeInvalid, image.CodeInvalidName, driver.CodeInvalidSpec, driver.CodeRootNotAllowed,
		driver.CodeUserNotAllowed, driver.CodeUserUnknown:
		return true
	}
	return false
}

// message returns the message and the hint of an error, for people. It cuts the text to a length that the servers
// accept.
func message(err error) string {
	text := err.Error()
	var refused *model.Error
	if errors.As(err, &refused) {
		text = refused.Message
		if refused.Hint != "" {
			text += "; " + refused.Hint
		}
	}
	if len(text) > 220 { // servers cut a reason at 256 bytes, including its prefix
		text = strings.ToValidUTF8(text[:220], "") + "..."
	}
	return text
}

// bare returns the message of an error without its code and hint.
func bare(err error) string {
	if refused, ok := errors.AsType[*model.Error](err); ok {
		return refused.Message
	}
	return err.Error()
}

// exitText describes an exit for the agent's own status page.
func exitText(e driver.Exit) string {
	if e.Message != "" {
		return fmt.Sprintf("%s, code %d: %s", e.Reason, e.Code, e.Message)
	}
	return fmt.Sprintf("%s, code %d", e.Reason, e.Code)
}

// down returns the state of an instance that should run and isn't ready: unready if it was ready or unready before,
// otherwise booting.
func (i *instance) down() model.Observed {
	switch i.entry.Status.Observed {
	case model.ObservedReady, model.ObservedUnready:
		return model.ObservedUnready
	}
	return model.ObservedBooting
}
