package reconcile

import (
	"fmt"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// replacesUnready reports whether instances of a group are replaced if they stay unready. They are not if the group
// tolerates unready instances forever, has data or identities, or has a role with conditions on evictions or
// replacements. A check with restart_after also prevents the replacement, because it restarts an instance in place.
func (g *groupView) replacesUnready() bool {
	wait := g.spec.Toleration.NotReady
	return wait != nil && *wait != model.Forever && g.spec.Eviction.Mode == model.ModeAlways &&
		g.spec.Replacement.Mode == model.ModeAlways &&
		!g.pinned() && len(g.spec.Volumes) == 0 && !slices.ContainsFunc(g.spec.Checks, func(c model.CheckSpec) bool {
		return c.RestartAfter != 0
	})
}

// unreadyLong reports whether an instance must be replaced because it has been unready for longer than its group
// tolerates. It returns false if the instance's node is silent or owes its inventory, and during a hold. It also
// returns false if more than half of the group is not ready: the node is then hardly the cause.
func (p *pass) unreadyLong(g *groupView, inst *fsm.Instance) bool {
	if inst.Status.Observed != model.ObservedUnready || !g.replacesUnready() {
		return false
	}
	if n := p.node(inst.Node); n == nil || p.isOut(n) || n.Restore.InventoryOwed {
		return false
	}
	if !p.reached(max(inst.Marks.UnreadySince, p.node(inst.Node).Return.LastReturn).Add(*g.spec.Toleration.NotReady) + 1) {
		return false
	}
	if p.onHold(inst) {
		return false
	}
	if ready := p.readySlots(g); 2*(g.row.Count-ready) > g.row.Count {
		p.wait(inst, model.CodeReplacementPending,
			fmt.Sprintf("it is not ready, and is not replaced: only %d of %d of %s are ready, so another machine "+
				"would hardly help", ready, g.row.Count, g.id), "")
		return false
	}
	return true
}

// readySlots returns how many slots of a group have a ready instance that should run.
func (p *pass) readySlots(g *groupView) int {
	ready := map[int]bool{}
	for inst := range p.state().InstancesOf(g.id) {
		if inst.Ready() && inst.Desired == model.DesiredRunning {
			ready[inst.Slot] = true
		}
	}
	return len(ready)
}
