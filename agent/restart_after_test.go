package agent

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
)

// illCheck returns a group with a check, and a flag. The check fails while the flag is true. Two failures, within 2 s,
// make the instance unready.
func illCheck(b *bubble, restartAfter model.Duration) (model.GroupSpec, *atomic.Bool) {
	ill := &atomic.Bool{}
	b.mem.exec = func(context.Context, driver.Command) (int, error) {
		if ill.Load() {
			return 1, nil
		}
		return 0, nil
	}
	g := sh("")
	g.Restart = model.RestartSpec{Attempts: 2, Interval: model.Hour, Delay: model.Second}
	g.Checks = []model.CheckSpec{{
		Name: "alive", Kind: model.CheckExec, Command: []string{"/bin/check"}, Interval: model.Second, Timeout: model.Second,
		Grace: model.Second, Failures: 2, RestartAfter: restartAfter,
	}}
	return g, ill
}

// A program whose check has failed for the time restart_after is restarted in place. After as many restarts as the
// restart block allows, the instance fails, so that the servers replace it.
func TestRestartAfter(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.start()
		g, ill := illCheck(b, 30*model.Second)
		id := b.run("web", g)
		b.pass(5 * time.Second)
		b.want(id, model.ObservedReady, "")
		ill.Store(true)
		b.pass(29 * time.Second)
		if n := b.mem.starts(); n != 1 || b.instance(id).Status.Observed != model.ObservedUnready {
			t.Errorf("before restart_after is over: %d starts, %+v", n, b.instance(id).Status)
		}
		b.pass(6 * time.Second)
		if n := b.mem.starts(); n != 2 {
			t.Errorf("after restart_after: %d starts", n)
		}
		ill.Store(false)
		b.pass(5 * time.Second)
		if i := b.want(id, model.ObservedReady, ""); i.Status.Restarts != 1 {
			t.Errorf("%d restarts", i.Status.Restarts)
		}
		ill.Store(true)
		b.pass(10 * time.Minute)
		b.want(id, model.ObservedFailed, string(model.CauseCheckFailed))
		if n := b.mem.starts(); n != 3 {
			t.Errorf("%d starts in all", n)
		}
	})
}

// A check that passes again before its restart_after is over, or that has no restart_after, causes no restart.
func TestNoRestartAfter(t *testing.T) {
	for name, test := range map[string]struct {
		after model.Duration
		ill   time.Duration
	}{"passes in time": {30 * model.Second, 20 * time.Second}, "never": {0, 10 * time.Minute}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				b.start()
				g, ill := illCheck(b, test.after)
				id := b.run("web", g)
				b.pass(5 * time.Second)
				for range 3 {
					ill.Store(true)
					b.pass(test.ill)
					ill.Store(false)
					b.pass(5 * time.Second)
				}
				b.want(id, model.ObservedReady, "")
				if n := b.mem.starts(); n != 1 {
					t.Errorf("%d starts", n)
				}
			})
		})
	}
}
