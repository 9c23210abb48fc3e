package agent

import (
	"context"
	"sync"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// companions is what the agent runs beside a program: its checks, its role check and its hooks. Only one goroutine may
// use it.
type companions struct {
	i     *instance
	ctx   context.Context
	task  Task
	ready *readiness
	role  *roleWatch
	// after is the after_start hook. It is nil if there is no such hook or its result was handled. While it is not nil,
	// the program can't become ready.
	after  *backgroundTask[error]
	before *backgroundTask[model.HookResult] // the preparation of a stop, or nil
	seq    uint64                            // the value of Assignment.Prepare that prepare handled last
}

// backgroundTask runs a function once in the background, and sends its result to out.
type backgroundTask[R any] struct {
	out    chan R // capacity 1; stays empty if the task is canceled before its function returns
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func send[R any](ctx context.Context, do func(context.Context) R) *backgroundTask[R] {
	ctx, cancel := context.WithCancel(ctx)
	e := &backgroundTask[R]{out: make(chan R, 1), cancel: cancel}
	e.wg.Go(func() {
		if r := do(ctx); ctx.Err() == nil {
			e.out <- r
		}
	})
	return e
}

// result returns the channel of the result. If e is nil, it returns a nil channel, which blocks for ever.
func (e *backgroundTask[R]) result() <-chan R {
	if e == nil {
		return nil
	}
	return e.out
}

// stop cancels the task and waits until it has stopped. It does nothing on a nil or stopped task.
func (e *backgroundTask[R]) stop() {
	if e != nil {
		e.cancel()
		e.wg.Wait()
	}
}

// attend starts the role check of a program. It also starts the after_start hook, or the checks if there is no such
// hook or the hook has run already. If the spec is unknown, or the servers no longer want the program to run, it starts
// nothing. The caller must call stop.
func (i *instance) attend(ctx context.Context, task Task) *companions {
	want := i.wanted()
	b := &companions{i: i, ctx: ctx, task: task, ready: watchNothing()}
	if want.Desired != model.DesiredRunning {
		want.Spec = nil
	}
	var check *model.RoleCheckSpec
	if want.Spec != nil {
		check = want.Spec.RoleCheck
	}
	b.role = watchRole(ctx, check, newAsker(i.shared.values(want), want, task.Exec), i.log)
	if hook, has := hookOf(want, model.HookAfterStart); has && i.entry.AfterStart {
		b.after = send(ctx, func(ctx context.Context) error {
			run, err := i.newHookRun(task, want, hook)
			if err == nil {
				err = run.run(ctx)
			}
			return err
		})
		return b
	}
	b.watchReadiness(want)
	return b
}

func (b *companions) watchReadiness(want transport.Assignment) {
	if want.Spec == nil {
		return
	}
	probe := newProber(b.i.shared.values(want), want, b.task.Exec)
	b.ready = watchReadiness(b.ctx, want.Spec.Checks, probe, b.task.Alive,
		b.i.entry.Status.Observed == model.ObservedReady)
}

// prepare starts the preparation that the servers want, and cancels a preparation that they no longer want. It does not
// restart a preparation that is running or has an outcome, and starts none while the after_start hook runs.
func (b *companions) prepare(want transport.Assignment) {
	if want.Prepare == b.seq {
		return
	}
	if b.before.stop(); want.Prepare == 0 || b.i.prepared(want.Prepare) {
		b.before, b.seq = nil, want.Prepare
		return
	}
	if b.after != nil || want.Spec == nil {
		return // prepare is called again after the hook has finished
	}
	b.seq = want.Prepare
	b.i.log.Info("preparing to stop", "preparation", want.Prepare, "cause", want.Cause)
	var ask asker
	if b.role.ask != nil {
		ask = b.role.fresh
	}
	b.before = send(b.ctx, func(ctx context.Context) model.HookResult { return b.i.prepare(ctx, b.task, want, ask) })
}

// afterStart handles the result of the after_start hook. If the hook failed and its on_failure is not "continue", the
// start has failed, and afterStart returns the hook's error. Otherwise it starts the checks, so that the program may
// become ready.
func (b *companions) afterStart(err error) error {
	want := b.i.wanted()
	b.after = nil
	if hook, _ := hookOf(want, model.HookAfterStart); err != nil {
		b.i.log.Warn("hook failed", "hook", model.HookAfterStart, "error", err, "on_failure", hook.OnFailure)
		if hook.OnFailure != model.HookContinue {
			return err
		}
	}
	b.i.entry.AfterStart = false
	_ = b.i.save() // save logs a failure, and the next change writes the entry again
	b.watchReadiness(want)
	return nil
}

// conclude reports the outcome of a preparation. Facts that the role check has found are reported first.
func (b *companions) conclude(r model.HookResult) {
	select {
	case found := <-b.role.out:
		b.i.learn(found)
	default:
	}
	b.i.conclude(r)
}

// stop stops the hooks and the checks, and waits for them. A second call does nothing.
func (b *companions) stop() {
	b.before.stop()
	b.after.stop()
	b.ready.stop()
	b.role.stop()
}
