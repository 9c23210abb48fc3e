package reconcile

import (
	"fmt"

	"github.com/outspan/outspan/fsm"
)

// replaceable reports whether the gates of a group's replacement let another member take over from one that is down, and records why not.
func (p *pass) replaceable(g *groupView, old *fsm.Instance) bool {
	if g.spec.Replacement.Mode != fsm.ModeWhen {
		return true
	}
	refusal := p.factsOnTheirWay(g.id, p.state().FactsRefs(old))
	if refusal == nil {
		refusal = p.state().CheckGates(old, g.spec.Replacement.When, fsm.EveryGate)
	}
	if refusal == nil {
		return true
	}
	p.block(old, refusal.Code, "it is not replaced yet: "+refusal.Message, refusal.Hint)
	return false
}

// afterLeaving is the need of a slot whose last instance left for a cause from outside its job, as the role has it: one that is never replaced starts again on
// its own node, and one that is replaced under conditions waits for them if it died.
func (p *pass) afterLeaving(g *groupView, slot *slotView, n *need) *need {
	last := slot.last
	if last == nil || g.system() || last.Version != n.version {
		return n
	}
	switch last.Marks.StopCause {
	case fsm.CauseNodeOffline, fsm.CauseNodeDraining, fsm.CauseNodeDisabled, fsm.CausePreempted, fsm.CauseRebalance, fsm.CauseAffinity, fsm.CauseDrainTimeout:
	default:
		return n
	}
	if g.spec.Replacement.Mode == fsm.ModeNever && n.home == "" && p.node(last.Node) != nil {
		n.home = last.Node
	}
	if last.Marks.StopCause != fsm.CauseNodeOffline || g.spec.Replacement.Mode != fsm.ModeWhen {
		return n
	}
	refusal := p.factsOnTheirWay(g.id, p.state().FactsRefs(last))
	if refusal == nil {
		refusal = p.state().CheckGates(last, g.spec.Replacement.When, fsm.EveryGate)
	}
	if refusal != nil {
		p.reasons.noRoom(slotKey{g.id, slot.n}, &unplaced{code: refusal.Code, message: refusal.Message})
		p.plan.refuse(fmt.Sprintf("%s/%d", g.subject(), slot.n), refusal)
		return nil
	}
	return n
}
