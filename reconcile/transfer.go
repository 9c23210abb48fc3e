package reconcile

import (
	"fmt"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Limits of a transfer. The phase attaching has no limit: there is no way back from it, so the transfer waits for its
// agent.
const (
	transferQueue = model.Hour        // wait until the slot's instance may be stopped
	transferStall = 5 * model.Minute  // time without any progress
	transferStart = 10 * model.Minute // time until the slot's instance is ready at its new home
)

// stepTransfers takes every transfer as far as the reports of its agents allow. It also orders the removal of old
// copies that were kept long enough.
func (p *pass) stepTransfers() {
	var all []*fsm.Transfer
	for _, t := range p.state().Transfers.All() {
		all = append(all, t)
	}
	for _, t := range all {
		if t.Phase.Ended() {
			p.coolDown(t)
			continue
		}
		for moved := true; moved && !t.Phase.Ended(); {
			moved = p.stepTransfer(t)
			t, _ = p.state().Transfers.Get(t.ID)
		}
	}
}

func transferSubject(t *fsm.Transfer) string { return "volume/" + string(t.Volume()) }

// coolDown orders the removal of the old copy of a transfer once its cooling time is over and NeedsOld finds no reason
// to keep it.
func (p *pass) coolDown(t *fsm.Transfer) {
	if t.Left.Old == "" || t.Left.Drop || !p.reached(t.Left.Until) || p.state().NeedsOld(t) != nil {
		return
	}
	if refusal := p.plan.try(transferSubject(t), &fsm.TransferStep{ID: t.ID, Drop: true}); refusal != nil {
		p.plan.refuse(transferSubject(t), refusal)
	}
}

// stepTransfer takes the next step of a transfer, if one is possible, and reports whether it took one. Failing the
// transfer is a step too.
func (p *pass) stepTransfer(t *fsm.Transfer) bool {
	switch t.Phase {
	case model.TransferQueued:
		if t.Kind == model.TransferRestore || len(t.Found) > 0 || t.Kind == model.TransferBackup && t.Options.Live {
			return p.advance(t, model.TransferRunning)
		}
		return p.stopForTransfer(t)
	case model.TransferStopping:
		return p.whenStopped(t)
	case model.TransferCopying:
		switch t.Target.State {
		case model.SideVerifying, model.SideVerified:
			return p.advance(t, model.TransferVerifying)
		}
	case model.TransferVerifying:
		if t.Target.State == model.SideVerified {
			return p.attach(t)
		}
	case model.TransferRunning:
		if t.Worker().State == model.SideVerified {
			if t.Kind == model.TransferAttach || t.Kind == model.TransferRestore && t.Options.Attach {
				return p.stopForTransfer(t)
			}
			return p.advance(t, model.TransferSucceeded)
		}
	case model.TransferAttaching:
		if t.Target.State == model.SideAttached {
			return p.advance(t, model.TransferStarting)
		}
		return false
	case model.TransferStarting:
		return p.finishTransfer(t)
	}
	return p.watchTransfer(t)
}

// advance puts a transfer into a phase and reports whether it did. If the draft refuses, advance records the refusal
// and returns false. It also returns false while actuation is paused.
func (p *pass) advance(t *fsm.Transfer, to model.TransferPhase) bool {
	refusal := p.plan.try(transferSubject(t), &fsm.TransferStep{ID: t.ID, Phase: to})
	if refusal != nil {
		p.plan.refuse(transferSubject(t), refusal)
	}
	return refusal == nil && !p.plan.paused
}

func (p *pass) failTransfer(t *fsm.Transfer, code model.Code, format string, args ...any) bool {
	refusal := p.plan.note(&fsm.TransferStep{ID: t.ID, Phase: model.TransferFailed, Code: code,
		Message: fmt.Sprintf(format, args...)})
	if refusal != nil {
		p.plan.refuse(transferSubject(t), refusal)
	}
	return refusal == nil
}

// stopForTransfer puts a transfer into the phase stopping. In the same group of commands, it begins the stop of the
// slot's instance, if there is one. If these commands are refused, for example by a budget, they are tried again later.
// The transfer fails if they are still refused after transferQueue.
func (p *pass) stopForTransfer(t *fsm.Transfer) bool {
	step := &fsm.TransferStep{ID: t.ID, Phase: model.TransferStopping}
	inst := p.runningIn(t)
	if inst == nil {
		return p.advance(t, model.TransferStopping)
	}
	stop := &fsm.InstanceStop{ID: inst.ID, Cause: model.CauseUser, By: t.Actor()}
	refusal := p.plan.try(transferSubject(t), step, stop)
	if refusal == nil {
		return !p.plan.paused
	}
	p.retryStop(inst, model.CauseUser, refusal)
	if !p.reached(t.Marks.Moved.Add(transferQueue)) {
		return false
	}
	return p.failTransfer(t, refusal.Code, "its instance could not be stopped for %s: %s", transferQueue, refusal.Message)
}

// runningIn returns the instance of the transfer's slot that should run, or nil.
func (p *pass) runningIn(t *fsm.Transfer) *fsm.Instance {
	for inst := range p.state().InstancesInSlot(t.Group, t.Slot) {
		if inst.Desired == model.DesiredRunning {
			return inst
		}
	}
	return nil
}

// whenStopped takes the next step once all instances of the slot have stopped. Until then, it stops an instance that
// should run, and fails a transfer that can't go on.
func (p *pass) whenStopped(t *fsm.Transfer) bool {
	for inst := range p.state().InstancesInSlot(t.Group, t.Slot) {
		if inst.Status.Observed == model.ObservedStopped {
			continue
		}
		if inst.Desired == model.DesiredRunning { // an earlier decision placed it
			p.stop(inst, model.CauseUser, t.Actor())
			inst = p.instance(inst.ID)
		}
		if inst.Eviction.Preparing && !p.reached(inst.Eviction.RetryAt) { // the hook may use its whole timeout
			return p.targetGone(t)
		}
		if inst.Desired == model.DesiredDraining && !p.reached(p.state().StopDue(inst)) { // it may use its whole grace
			return p.targetGone(t)
		}
		return p.watchTransfer(t)
	}
	switch t.Kind {
	case model.TransferMigrate:
		return p.advance(t, model.TransferCopying)
	case model.TransferBackup:
		return p.advance(t, model.TransferRunning)
	}
	return p.attach(t)
}

// attach puts the verified copy to use. If the draft refuses this for a reason that may pass, the transfer waits. For
// any other reason, the transfer fails, and the old copy stays in use.
func (p *pass) attach(t *fsm.Transfer) bool {
	refusal := p.plan.try(transferSubject(t), &fsm.TransferStep{ID: t.ID, Phase: model.TransferAttaching})
	if refusal == nil {
		return !p.plan.paused
	}
	switch refusal.Code {
	case model.CodeRestoreUnconfirmed, model.CodeInventoryMissing, model.CodeSlotTaken:
		// the transfer waits until operators or agents have settled what a restore lost
		p.plan.refuse(transferSubject(t), refusal)
		return false
	}
	n := p.node(t.To)
	if refusal.Code == model.CodeStale || n != nil && refusal.Code == model.CodeNodeNotEligible &&
		n.Intent == model.IntentActive {
		p.plan.refuse(transferSubject(t), refusal)
		return p.watchTransfer(t)
	}
	return p.failTransfer(t, refusal.Code, "%s", refusal.Message)
}

// finishTransfer ends a transfer whose copy is in use. The transfer succeeds when the slot's instance is ready, or when
// the slot is no longer wanted. If neither happens within transferStart, the transfer fails.
func (p *pass) finishTransfer(t *fsm.Transfer) bool {
	step := &fsm.TransferStep{ID: t.ID, Phase: model.TransferSucceeded}
	refusal := p.plan.try(transferSubject(t), step)
	if refusal == nil {
		return !p.plan.paused
	}
	if !p.reached(t.Marks.Moved.Add(transferStart)) {
		return false
	}
	return p.failTransfer(t, model.CodeReplacementPending,
		"the volume is on node %s, and its instance has not become ready there for %s", p.nodeName(t.To), transferStart)
}

// watchTransfer fails a transfer if its target node is not active any more, or if it made no progress for
// transferStall. It reports whether the transfer failed.
func (p *pass) watchTransfer(t *fsm.Transfer) bool {
	if p.targetGone(t) {
		return true
	}
	if !p.reached(t.Marks.Moved.Add(transferStall)) {
		return false
	}
	for _, id := range []model.NodeID{t.From, t.To} {
		if n := p.node(id); n != nil && n.Health == model.HealthOffline {
			return p.failTransfer(t, model.CodeAgentUnreachable, "node %s is offline and nothing has moved for %s",
				n.Name, transferStall)
		}
	}
	if inst := p.runningIn(t); inst != nil && t.Phase == model.TransferStopping && inst.Eviction.Failure != "" {
		return p.failTransfer(t, model.CodeHookFailed, "instance %s could not be prepared for its stop: %s",
			inst.ID, inst.Eviction.Failure)
	}
	return p.failTransfer(t, model.CodeStalled, "nothing has moved for %s while %s", transferStall, t.Phase)
}

// targetGone fails a transfer if its target node is not active any more, and reports whether the transfer failed.
func (p *pass) targetGone(t *fsm.Transfer) bool {
	n := p.node(t.To)
	return n != nil && n.Intent != model.IntentActive &&
		p.failTransfer(t, model.CodeNodeNotEligible, "node %s is %s", n.Name, n.Intent)
}

// held returns why a slot must stay empty while a transfer works on its volumes; nil if it need not.
func (p *pass) held(group model.GroupID, slot int) *unplaced {
	t, ok := p.state().TransferOf(group, slot)
	if !ok || !t.Holds() {
		return nil
	}
	return &unplaced{code: model.CodeVolumeInUse, message: p.transferText(t)}
}

func (p *pass) transferText(t *fsm.Transfer) string {
	text := fmt.Sprintf("transfer %s (%s) is %s", t.ID, t.Kind, t.Phase)
	if t.To != "" && t.To != t.From {
		text = fmt.Sprintf("transfer %s (%s to node %s) is %s", t.ID, t.Kind, p.nodeName(t.To), t.Phase)
	}
	if side := t.Worker(); side.Total > 0 && (side.State == model.SideCopying || side.State == model.SideVerifying) {
		text += fmt.Sprintf(", %d of %d MiB", side.Bytes>>20, side.Total>>20)
	}
	return text
}

// promise reserves room on the target nodes of transfers for the instances that will start on them.
func (p *pass) promise(t *nodeTable) {
	for _, tr := range p.state().Transfers.All() {
		if v := t.view(tr.To); v != nil {
			v.promised += p.promised(tr)
		}
	}
}

// promised returns the memory, in bytes, that a transfer reserves on its target node. It is 0 if the transfer moves no
// instance to that node, or once the instance is placed on it.
func (p *pass) promised(t *fsm.Transfer) int64 {
	s := p.state()
	policy, ok := s.Policy(t.Group)
	row, known := s.Groups.Get(t.Group)
	if !ok || !known || !t.Leaves() || t.Slot >= row.Count {
		return 0
	}
	for inst := range s.InstancesInSlot(t.Group, t.Slot) {
		if inst.Node == t.To && inst.Status.Observed != model.ObservedStopped {
			return 0
		}
	}
	return s.ClaimsOf(policy, nil).Resources.MemoryBytes
}

// redeem releases the room that a transfer in phase starting has reserved, so that its instance can be placed.
func (p *pass) redeem(n *need) {
	t, ok := p.state().TransferOf(n.group.id, n.slot)
	if !ok || t.Phase != model.TransferStarting {
		return
	}
	if v := p.candidates().view(t.To); v != nil {
		p.nodes.release(v, min(v.promised, p.promised(t)))
	}
}
