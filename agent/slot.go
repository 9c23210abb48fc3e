package agent

import (
	"context"
	"errors"
	"time"

	"github.com/outspan/outspan/agent/bridge"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// acceptance says whether the servers accept this agent as its node's agent, as far as this process knows.
type acceptance int32

const (
	acceptanceUnknown acceptance = iota // no attempt to register has finished
	acceptanceGiven                     // accepted, or attempts failed, but none with node_taken; stored assignments apply
	acceptanceOfOther                   // refused with node_taken: another agent has the node's id, as on a copied machine
)

// after returns the acceptance that follows from s when an attempt to register has returned err. After
// acceptanceOfOther, only a success changes the acceptance.
func (s acceptance) after(err error) acceptance {
	var refused *model.Error
	switch {
	case err == nil:
		return acceptanceGiven
	case errors.As(err, &refused) && refused.Code == model.CodeNodeTaken:
		return acceptanceOfOther
	case s == acceptanceOfOther:
		return s
	}
	return acceptanceGiven
}

// holdStanding blocks until the acceptance is acceptanceGiven. Until then, another agent may have this node's id, so
// nothing may be started. It returns false if the assignment changed meanwhile or ctx ended.
func (i *instance) holdStanding(ctx context.Context) bool {
	for first := true; acceptance(i.shared.acceptance.Load()) != acceptanceGiven; first = false {
		if first {
			i.log.Info("waiting for the servers: this agent may not be that of the node")
		}
		if !i.wait(ctx, leaseCheck) {
			return false
		}
	}
	return true
}

// holdSlot blocks until the instance may be started without a second instance running in its slot. It returns false if
// the servers don't want the instance to run any more, if the assignment changed meanwhile, or if ctx ended.
func (i *instance) holdSlot(ctx context.Context, want transport.Assignment) bool {
	// The instance starts at once if the slot may have several instances and want.Unsettled is false. It also starts at
	// once if its program was started during this boot of this machine and ended on its own.
	if !want.Spec.OneHolder() && !want.Unsettled || i.entry.Host == i.shared.host && i.endedItself() {
		return true
	}
	// Otherwise another instance may run in the slot on another node by now: after a reboot, if the disk was copied, or if
	// the servers stopped this instance and the journal could not record that. The servers' assignments show whether this
	// instance should still run.
	for first := true; want.Unsettled || !i.shared.lease.assignedNow(); first = false {
		if first {
			i.notStarted()
			i.log.Warn(
				"waiting for the servers: only one may run, and this one did not end by itself since the machine was booted")
		}
		if !i.wait(ctx, leaseCheck) {
			return false
		}
	}
	// The assignment that ended the wait may also stop this instance.
	return i.wanted().Desired == model.DesiredRunning
}

// notStarted reports that a pending instance waits and does not run. After a restore the servers may believe that it is
// ready, because they know an older state. notStarted does nothing if the instance is not pending.
func (i *instance) notStarted() {
	if i.entry.Status.Observed == model.ObservedPending {
		i.observe(i.down(), "not_started", nil)
	}
}

// holdPorts returns true if the instance can have its ports. As long as the removal of a network that has them goes on,
// it waits a moment and returns false. That is no failure of the instance, unless it has waited for endingPatience.
func (i *instance) holdPorts(ctx context.Context, want transport.Assignment) bool {
	holder := i.shared.endingNetwork(want)
	if holder == "" {
		i.portsSince = time.Time{}
		return true
	}
	if i.portsSince.IsZero() {
		i.portsSince = time.Now()
	}
	what := "the network of instance " + holder + ", which has ended, is not removed yet"
	if time.Since(i.portsSince) >= endingPatience {
		i.portsSince = time.Time{}
		i.failed(failure{code: string(bridge.CodePortTaken), detail: what})
		return false
	}
	i.observe(i.down(), string(bridge.CodePortTaken)+": "+what, i.entry.Status.ExitCode)
	i.wait(ctx, runtimeAgain)
	return false
}
