package reconcile

import (
	"fmt"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// quotaAfter returns why the class's quota has no room for a need even when the replaced instance is gone. It returns
// nil if there is room, or if the need replaces no instance.
func (p *pass) quotaAfter(n *need, f *field) *unplaced {
	if n.replaces == nil {
		return nil
	}
	name, _ := n.group.id.Split()
	if refusal := p.state().CheckQuota(name, f.claim, n.replaces); refusal != nil {
		return &unplaced{code: refusal.Code, message: refusal.Message}
	}
	return nil
}

// givesUpSurge reports whether a need can't be met only because its class's quota has no room for a surge. Such a need
// is not refused, because the old instance will be stopped before it is replaced. givesUpSurge records this as what the
// instance waits for.
func (p *pass) givesUpSurge(n *need, why *unplaced) bool {
	if n.replaces == nil || !fsm.IsQuota(why.code) || !surges(n.cause) || p.state().MustStopFirst(n.replaces) == nil {
		return false
	}
	p.wait(n.replaces, model.CodeReplacementPending, "it is stopped before it is replaced: "+why.message, "")
	return true
}

// surges reports whether a replacement for this cause may be made before the old instance is stopped.
func surges(cause model.Cause) bool {
	return cause == model.CauseNodeDraining || cause == model.CauseNodeNotReady || cause == model.CauseRollout
}

// stopWithoutSurge stops an instance before its replacement is made, because the class's quota has no room for both
// (docs/budgets.md, "Quotas"). The budget must still allow the stop. If a replacement would fit nowhere, only accepted
// downtime lets the instance stop.
func (p *pass) stopWithoutSurge(d *drainPart, g *groupView, inst *fsm.Instance, why *model.Error) {
	n := p.takeover(g, g.slot(inst.Slot), leaveDrained, urgentMove)
	if nowhere := p.secured(n); nowhere != nil {
		p.unplaced(n, nowhere)
		p.acceptDowntime(d, inst)
		return
	}
	p.stopFor(d, inst)
	if b, ok := p.reasons.blockers[inst.ID]; ok {
		b.Message = fmt.Sprintf("%s; it can't be replaced first: %s", b.Message, why.Message)
		p.reasons.blockers[inst.ID] = b
	}
}

// rollsWithoutSurge reports whether the class's quota keeps a rollout from making new instances beside the old ones.
func (p *pass) rollsWithoutSurge(g *groupView) bool {
	for _, slot := range p.rollable(g) {
		if slot.successor == nil && p.state().MustStopFirst(slot.holder) != nil {
			return true
		}
	}
	return false
}

// keepsAll reports whether a budget of the group is declared as blocking, so that no instance may be down.
func (p *pass) keepsAll(id model.GroupID) bool {
	_, declared := p.state().BlockingBudget(id)
	return declared
}
