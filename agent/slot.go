package agent

import (
	"context"
	"errors"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// acceptance says whether the servers accept this agent as the one of its node, as far as this process knows.
type acceptance int32

const (
	acceptanceUnknown acceptance = iota // no attempt to register has ended
	acceptanceGiven                     // they accept it, or none can be reached: what was assigned before counts
	acceptanceOfOther                   // they refuse it: another agent has the node's id, as on a copy of a machine
)

// after returns the acceptance once an attempt to register ended with err.
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

// holdStanding blocks while another agent may have this node's id: this one starts nothing then. It returns false if
// the assignment changed meanwhile.
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

// holdSlot blocks until an instance that must not run twice may be started. If this boot of this machine started it
// before and the program ended on its own, it returns at once. Otherwise it waits for the assignments of the present
// registration, because the instance may run elsewhere by now: after a reboot, on a copied disk, or if the servers
// stopped it and the journal could not note that. It returns false if the assignment changed meanwhile.
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
	// the assignment that arrived may be the one that ends this instance
	return i.wanted().Desired == model.DesiredRunning
}

// notStarted reports that an instance which the servers may believe ready does not run: after a restore they know an
// older state.
func (i *instance) notStarted() {
	if i.entry.Status.Observed == model.ObservedPending {
		i.observe(i.down(), "not_started", nil)
	}
}
