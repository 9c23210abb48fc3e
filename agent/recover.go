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
	for i.unclear && ctx.Err() == nil {
		i.readopt(ctx)
	}
	if ctx.Err() == nil && i.entry.Live && i.current() == nil {
		i.setLive(false)
		i.failed(failure{code: driver.ReasonShimLost.String()})
	}
}

// readopt looks once more whether a program runs. While that can't be told the instance is not ready, and nothing says that it has ended: another one could be
// started elsewhere.
func (i *instance) readopt(ctx context.Context) {
	part := "adoption of " + string(i.id)
	task, err := i.shop.runtime.Readopt(ctx, driver.ID(i.id))
	if err != nil {
		i.shop.problem(part, message(err))
		o := i.down()
		if was := i.entry.Status.Observed; was == fsm.ObservedDraining {
			o = was
		}
		i.observe(o, "not_adopted: "+message(err), i.entry.Status.ExitCode)
		sleep(ctx, adoptRetry, nil)
		return
	}
	i.shop.problem(part, "")
	i.mu.Lock()
	i.task = task
	i.mu.Unlock()
	i.unclear = false
	i.log.Info("adopted late", "found", task != nil)
}
