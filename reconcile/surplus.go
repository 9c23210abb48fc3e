package reconcile

import (
	"cmp"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// stopSurplus stops instances that are not wanted any more: instances of stopped jobs and removed groups, instances
// above the count or where a system group may not run, and one of two instances in a slot that needs only one.
func (p *pass) stopSurplus() {
	for _, g := range p.groups {
		if g.system() && g.row.Count > 0 {
			p.stopStraySystem(g)
		} else {
			p.scaleDown(g)
		}
		for _, slot := range g.open {
			if slot.successor != nil && !slot.dropped {
				p.settlePair(g, slot)
			}
		}
	}
}

// stop begins the stop of an instance, or its preparation. It returns true only if the stop itself has begun. If the
// stop is refused, it records the refusal and plans another try.
func (p *pass) stop(inst *fsm.Instance, cause model.Cause, by string) bool {
	return p.stopStage(inst, cause, by) == stageBegun
}

func (p *pass) stopStage(inst *fsm.Instance, cause model.Cause, by string) stage {
	return p.stopWith(inst, &fsm.InstanceStop{ID: inst.ID, Cause: cause, By: by})
}

// stopWith begins the stop that a command describes, or its preparation. If the stop is refused, it records the refusal
// and plans another try.
func (p *pass) stopWith(inst *fsm.Instance, c *fsm.InstanceStop) stage {
	stage, refusal := p.stopAs("instance/"+string(inst.ID), c)
	if refusal != nil {
		p.retryStop(inst, c.Cause, refusal)
	}
	return stage
}

// dispensable orders instances for scale-down. Of two instances of equal worth, the older one is stopped first.
func (p *pass) dispensable(g *groupView, a, b *fsm.Instance) int {
	return cmp.Or(p.compareWorth(g, a, b), older(a, b))
}

// bound reports whether the gates of an instance's role, such as !self.leader, protect the instance. It returns 0 if
// they don't, 1 if the facts are unknown, and 2 if the role refuses the eviction.
func (p *pass) bound(inst *fsm.Instance) int {
	switch refusal := p.state().MayEvict(inst, model.CauseNodeDraining, "", fsm.EveryGate); {
	case refusal == nil:
		return 0
	case refusal.Code == model.CodeFactsUnknown:
		return 1
	}
	return 2
}

// first orders true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func isDown(inst *fsm.Instance) bool {
	return inst.Status.Observed == model.ObservedFailed || inst.Status.Observed == model.ObservedLost
}

// leaving reports whether an instance's node is to be emptied or does not exist any more.
func (p *pass) leaving(inst *fsm.Instance) bool {
	if p.state().InService(inst.Node) {
		return false
	}
	n := p.node(inst.Node)
	return n == nil || n.Intent == model.IntentDraining || n.Intent == model.IntentDisabled
}

// settlePair stops one of the two instances in a slot, if that can happen now. A failed holder is stopped. A lost
// holder is stopped once its successor can take over. A holder that did not become ready in time is stopped once its
// successor is ready. If the reason for the successor is gone, the more dispensable of the two is surplus (L14).
func (p *pass) settlePair(g *groupView, slot *slotView) {
	holder, next := slot.holder, slot.successor
	switch w := p.leaveReasonOf(g, holder); w {
	case leaveNone:
		if p.isMember(holder) || !stopsForPerson(holder) {
			p.stopOneOf(g, slot)
		}
	case leaveLost:
		if p.takesOver(g, next) && p.stop(holder, model.CauseNodeOffline, "replaced by "+string(next.ID)) {
			slot.handOver(p)
		} else {
			p.wait(holder, model.CodeReplacementPending, "its replacement "+string(next.ID)+" is not ready yet", "")
		}
	case leaveFailed:
		down := holder.Status.Observed == model.ObservedFailed
		if (down || next.Ready()) && p.stop(holder, failureCause(holder), "replaced by "+string(next.ID)) {
			slot.handOver(p)
		}
	}
}

// stopsForPerson reports whether an instance will stop because a person requested it. The successor then takes over,
// unless the instance is a member of a replicated group.
func stopsForPerson(inst *fsm.Instance) bool {
	return inst.Eviction.Requested && inst.Eviction.Cause == model.CauseUser
}

// stopOneOf stops the more dispensable of a slot's two instances. If a lost instance is back, its replacement is
// stopped, unless only the replacement is ready. In a replicated group, a replacement that was made for another reason
// first finishes the copy that it has begun to build (L14).
func (p *pass) stopOneOf(g *groupView, slot *slotView) {
	holder, next := slot.holder, slot.successor
	if g.spec.Replicated() && next.Cause != model.CauseNodeOffline && next.Wanted() && !p.takesOver(g, next) &&
		p.leaveReasonOf(g, next) == leaveNone {
		p.wait(holder, model.CodeReplicaEvicting,
			"the copy that "+string(next.ID)+" has begun to build is finished (L14); then one of the two goes", "")
		return
	}
	successorGoes := p.dispensable(g, next, holder) < 0
	if next.Cause == model.CauseNodeOffline {
		successorGoes = !next.Ready() || holder.Ready()
	}
	if !successorGoes {
		if p.stop(holder, model.CauseScaleDown, "its replacement "+string(next.ID)+" stays") {
			slot.handOver(p)
		}
		return
	}
	if p.stop(next, model.CauseScaleDown, "what it should replace stays") {
		slot.leaving = append(slot.leaving, p.instance(next.ID))
		slot.successor = nil
	}
}

// handOver makes the successor the holder, after the stop of the old holder has begun.
func (v *slotView) handOver(p *pass) {
	gone := p.instance(v.holder.ID)
	v.leaving, v.last = append(v.leaving, gone), gone
	v.holder, v.successor = v.successor, nil
}

// killOverdue orders the kill of instances that are still draining after their grace. The agent kills them and reports
// their end (P15). An agent that can't be reached gets the order when it returns (P16).
func (p *pass) killOverdue() {
	for _, id := range p.kills {
		inst := p.instance(id)
		if p.reached(p.state().StopDue(inst)) {
			if refusal := p.plan.try("instance/"+string(id), &fsm.InstanceKill{ID: id}); refusal != nil {
				p.blockBy(inst, refusal)
			}
		}
	}
}
