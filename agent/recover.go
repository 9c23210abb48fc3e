package agent

import (
	"context"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/fsm"
)

// adoptRetry is the time between two looks at an instance of which the runtime can't tell whether it runs.
const adoptRetry = 2 * time.Second

// recover finds out what became of an instance that an earlier agent ran, and accounts for a program of which neither a process nor an exit status is left. It
// returns early when ctx ends.
func (i *instance) recover(ctx context.Context) {
	for i.isUnclear() && ctx.Err() == nil {
		i.readopt(ctx)
	}
	if ctx.Err() == nil && i.entry.Live && i.current() == nil {
		i.setLive(false)
		i.failed(failure{code: driver.ReasonShimLost.String()})
	}
}

// isUnclear reports whether the runtime can't tell yet if a program runs. It does not block, and may be called from any goroutine.
func (i *instance) isUnclear() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.unclear
}

// readopt looks once more whether a program runs. While that can't be told the instance is not ready, and nothing says that it has ended: another one could be
// started elsewhere. What is over as far as the journal knows stays so, unless a program is found.
func (i *instance) readopt(ctx context.Context) {
	part := "adoption of " + string(i.id)
	task, err := i.shop.runtime.Readopt(ctx, driver.ID(i.id))
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		i.shop.problem(part, message(err))
		i.observeUnclear(message(err))
		sleep(ctx, adoptRetry, nil)
		return
	}
	i.shop.problem(part, "")
	i.mu.Lock()
	i.task, i.unclear = task, false
	i.mu.Unlock()
	i.log.Info("adopted late", "found", task != nil)
	switch {
	case i.entry.Live:
	case task != nil && !ended(task):
		i.adopt()
	default:
		i.shop.release(i.id)
	}
}

// observeUnclear reports why it can't be told whether a program runs.
func (i *instance) observeUnclear(why string) {
	if !i.entry.Live {
		return
	}
	o := i.down()
	if was := i.entry.Status.Observed; was == fsm.ObservedDraining {
		o = was
	}
	i.observe(o, "not_adopted: "+why, i.entry.Status.ExitCode)
}
