package agent

import (
	"context"
	"errors"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// acceptance is what this process knows of whether the servers accept this agent as the agent of its node.
type acceptance int32

const (
	acceptanceUnknown acceptance = iota // no attempt to register has ended
	acceptanceGiven                     // the servers accept it, or none can be reached: the earlier assignments count
	acceptanceOfOther                   // refused: another agent has the node's id, as on a copy of a machine
)

// after returns what the acceptance becomes when a registration attempt has ended with err.
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

// holdStanding blocks while another agent may have this node's id, because nothing may be started then. It returns
// false if the assignment changed meanwhile or ctx ended.
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

// holdSlot blocks until an instance that must not run twice may be started. It returns at once if the program was
// started during this boot of this machine and ended on its own. Otherwise the instance may run elsewhere by now:
// after a reboot, on a copied disk, or if the servers stopped it and the journal could not note that. Then holdSlot
// waits for the assignments of the present registration. It returns false if the assignment changed meanwhile or ctx
// ended.
func (i *instance) holdSlot(ctx context.Context, want transport.Assignment) bool {
	if !want.Spec.OneHolder() && !want.Unsettled || i.entry.Host == i.shared.host && i.endedItself() {
		return true
	}
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

// notStarted reports that the instance does not run. After a restore the servers may believe that it is ready, because
// they know an older state.
func (i *instance) notStarted() {
	if i.entry.Status.Observed == model.ObservedPending {
		i.observe(i.down(), "not_started", nil)
	}
}
