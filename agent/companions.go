package agent

import (
	"context"
	"sync"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// companions is everything that the agent does for a running program: its checks, its role check and its hooks. One
// goroutine uses it.
type companions struct {
	i     *instance
	ctx   context.Context
	task  Task
	ready *readiness
	role  *roleWatch
	// after is the running after_start hook; while it is nil, the program may become ready. before is the preparation of a
	// stop that is under way.
	after  *backgroundTask[error]
	before *backgroundTask[model.HookResult]
	seq    uint64 // of the current or the last preparation
}

// backgroundTask is a task that runs once in the background. Its result is taken from out.
type backgroundTask[R any] struct {
	out    chan R // capacity 1; stays empty once the task was canceled
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

// result returns the channel of the result; nil, which blocks for ever, if there is no task.
func (e *backgroundTask[R]) result() <-chan R {
	if e == nil {
		return nil
	}
	return e.out
}

// stop cancels the task and waits for its end. It may be called again.
func (e *backgroundTask[R]) stop() {
	if e != nil {
		e.cancel()
		e.wg.Wait()
	}
}

// attend starts the checks, the role check and the after_start hook of a program. The caller must call stop.
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

// prepare begins the preparation that the servers ask for, or cancels one that they gave up.
func (b *companions) prepare(want transport.Assignment) {
	if want.Prepare == b.seq {
		return
	}
	if b.before.stop(); want.Prepare == 0 || b.i.prepared(want.Prepare) {
		b.before, b.seq = nil, want.Prepare
		return
	}
	if b.after != nil || want.Spec == nil {
		return // the after_start hook comes first
	}
	b.seq = want.Prepare
	b.i.log.Info("preparing to stop", "preparation", want.Prepare, "cause", want.Cause)
	var ask asker
	if b.role.ask != nil {
		ask = b.role.fresh
	}
	b.before = send(b.ctx, func(ctx context.Context) model.HookResult { return b.i.prepare(ctx, b.task, want, ask) })
}

// afterStart is called when the after_start hook has ended. Either the program may become ready now, or the failed hook
// makes its start a failure; then afterStart returns why.
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
	_ = b.i.save() // a failure is logged; the next change writes the entry again
	b.watchReadiness(want)
	return nil
}

// conclude reports the outcome of a preparation. The facts that the preparation found are reported first.
func (b *companions) conclude(r model.HookResult) {
	select {
	case found := <-b.role.out:
		b.i.learn(found)
	default:
	}
	b.i.conclude(r)
}

// stop ends everything and waits for it. It may be called again.
func (b *companions) stop() {
	b.before.stop()
	b.after.stop()
	b.ready.stop()
	b.role.stop()
}
