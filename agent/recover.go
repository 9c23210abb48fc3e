package agent

import (
	"context"
	"strconv"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// adoptRetry is the pause between two attempts to find out whether an unclear instance runs.
const adoptRetry = 2 * time.Second

// recover finds out what became of an instance that an earlier agent ran. While that is unclear, the instance is not
// ready, and its end is not reported, because the servers could then start another instance elsewhere. If the servers
// want the unclear instance stopped, its processes are killed after its grace. recover returns early if ctx ends.
func (i *instance) recover(ctx context.Context) {
	var draining time.Time // when the drain began; zero if the instance is not draining
	for i.isUnclear() && ctx.Err() == nil {
		want := i.wanted()
		switch {
		case want.Desired != model.DesiredDraining:
			draining = time.Time{}
		case draining.IsZero():
			draining = time.Now()
		}
		if i.readopt(ctx, want) {
			break
		}
		i.declinePreparation(want)
		pause := adoptRetry
		if left := i.patience(want, draining); left <= 0 {
			i.endUnclear(ctx, want)
		} else {
			pause = min(pause, left)
		}
		if i.isUnclear() {
			i.wait(ctx, pause)
		}
	}
	if ctx.Err() != nil || !i.entry.Live || i.current() != nil {
		return
	}
	// The program left neither a process nor an exit status, so its end has the reason shim_lost.
	i.entry.Live = false
	if i.wanted().Desired != model.DesiredRunning {
		i.observe(model.ObservedStopped, driver.ReasonShimLost.String(), nil)
		i.shared.release(i.id)
		return
	}
	i.failed(failure{code: driver.ReasonShimLost.String()})
}

// adopt records that a program of an earlier agent runs, or may run.
func (i *instance) adopt() { i.entry.Live, i.adopted, i.entry.Host = true, true, i.shared.host }

// isUnclear reports whether it is still unknown if the instance's program runs. It may be called from any goroutine.
func (i *instance) isUnclear() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.unclear
}

// readopt asks the runtime again whether the instance's program runs, and returns true if the runtime now knows.
// Otherwise it shows the cause on the status page and, for a live instance, reports the cause as the instance's reason.
func (i *instance) readopt(ctx context.Context, want transport.Assignment) (known bool) {
	task, err := i.shared.runtime.Readopt(ctx, driver.ID(i.id))
	if err == nil {
		i.cleared(task)
		return true
	}
	if ctx.Err() != nil {
		return false
	}
	i.shared.problem(i.adoption(), message(err))
	if i.entry.Live { // otherwise the journal has the program's end, and the instance's state stays
		o := i.down()
		if want.Desired == model.DesiredDraining || i.entry.Status.Observed == model.ObservedDraining {
			o = model.ObservedDraining
		}
		i.observe(o, "not_adopted: "+message(err), i.entry.Status.ExitCode)
	}
	return false
}

// cleared records what became of an unclear instance. task is nil if nothing is left of the instance.
func (i *instance) cleared(task Task) {
	i.shared.problem(i.adoption(), "")
	i.mu.Lock()
	i.task, i.unclear = task, false
	i.mu.Unlock()
	i.log.Info("adopted late", "found", task != nil)
	switch {
	case i.entry.Live:
	case task != nil && !ended(task):
		i.adopt()
	default:
		i.shared.release(i.id)
	}
}

// adoption returns the name of the problem on the status page while the instance is unclear.
func (i *instance) adoption() string { return "adoption of " + string(i.id) }

// patience returns how much longer an unclear instance may run before it is killed: without limit if it is wanted, and
// not at all if it must be stopped. A draining instance may run for its drain delay plus its grace. draining is when
// its drain began.
func (i *instance) patience(want transport.Assignment, draining time.Time) time.Duration {
	switch want.Desired {
	case model.DesiredRunning:
		return maxWait
	case model.DesiredDraining:
		_, grace := i.shared.stopPolicy(want)
		if want.Spec != nil {
			grace += asDuration(want.Spec.Stop.DrainDelay)
		}
		return grace - time.Since(draining)
	}
	return 0
}

// endUnclear kills all processes that an unclear instance may have, and finds out what became of the instance. If the
// kill fails, the instance stays unclear.
func (i *instance) endUnclear(ctx context.Context, want transport.Assignment) {
	i.log.Warn("killing what may run: it is not wanted any more")
	if err := i.shared.runtime.End(ctx, driver.ID(i.id)); err != nil {
		i.log.Error("what may run could not be ended", "error", err)
		return
	}
	if ctx.Err() == nil && !i.readopt(ctx, want) && ctx.Err() == nil {
		i.cleared(nil) // readopt failed, but End has killed all processes
	}
}

// enterUnclear adds entries for the unclear instances that entries lacks. It skips instances that are known to have
// stopped, because only their logs are left.
func (c *supervisors) enterUnclear(unclear []driver.ID, entries map[model.InstanceID]entry) {
	for _, name := range unclear {
		id := model.InstanceID(name)
		if _, known := entries[id]; !known && c.shared.records.hasStopped(id) {
			c.shared.log.Warn("what is left of an instance that has stopped can't be read", "instance", id)
			continue
		}
		c.enter(c.slotOf(id), entries)
	}
}

// slotOf returns an assignment with the id of an unclear instance. The assignment has the job, group and slot only if
// the runtime can read them, and they are valid.
func (c *supervisors) slotOf(id model.InstanceID) transport.Assignment {
	nothing := transport.Assignment{ID: id}
	spec, _ := c.shared.runtime.Launched(driver.ID(id))
	slot, err := strconv.Atoi(spec.Env["OUTSPAN_SLOT"])
	job := model.JobName(spec.Env["OUTSPAN_JOB"])
	a := transport.Assignment{ID: id, Job: job, Group: model.NewGroupID(job, spec.Env["OUTSPAN_GROUP"]), Slot: slot}
	if err != nil || checkAssignment(a) != nil {
		return nothing
	}
	return a
}
