package reconcile

import (
	"fmt"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

// needs lists the instances that a group lacks and that can be made now. It records why other instances can't be made.
func (p *pass) needs(g *groupView) []*need {
	if g.system() {
		return p.systemNeeds(g)
	}
	var needs []*need
	for _, slot := range p.wantedSlots(g) {
		if n := p.slotNeed(g, slot); n != nil {
			needs = append(needs, n)
		}
	}
	return p.oneBuild(g, append(needs, p.rollNeeds(g)...))
}

// wantedSlots lists the slots that the group keeps and that may lack something. These are as many of the lowest empty
// slots as instances are missing, and the slots in g.open whose holder stays in a scale-down. Neighbouring slots that
// never had an instance may share one view (see appendFresh).
func (p *pass) wantedSlots(g *groupView) []*slotView {
	missing := max(g.row.Count-g.held(), 0)
	wanted := make([]*slotView, 0, 1+len(g.open))
	rows, open := g.rows, g.open
	for n := 0; missing > 0 && n < g.row.Count; {
		for len(rows) > 0 && rows[0].slot < n {
			rows = rows[1:]
		}
		for len(open) > 0 && open[0].n < n {
			open = open[1:]
		}
		if len(rows) == 0 || rows[0].slot > n {
			gap := min(g.row.Count-n, missing)
			if len(rows) > 0 {
				gap = min(gap, rows[0].slot-n)
			}
			wanted = p.appendFresh(wanted, g, n, n+gap)
			n, missing = n+gap, missing-gap
			continue
		}
		if len(open) > 0 && open[0].n == n && open[0].holder == nil {
			wanted, missing = append(wanted, open[0]), missing-1
		}
		n++
	}
	for _, slot := range g.open {
		if slot.holder != nil && !slot.dropped {
			wanted = append(wanted, slot)
		}
	}
	return wanted
}

// appendFresh appends views of the slots in [from, to), none of which has an instance row. A slot that may have
// volumes, or an instance that the state lacks after a restore, gets its own view (see SlotsThatDiffer). The other
// slots share views.
func (p *pass) appendFresh(wanted []*slotView, g *groupView, from, to int) []*slotView {
	if to-from == 1 {
		return append(wanted, &slotView{n: from})
	}
	if g.slotsThatDiffer == nil {
		g.slotsThatDiffer = p.state().SlotsThatDiffer(g.id, g.row.Count)
	}
	next, _ := slices.BinarySearch(g.slotsThatDiffer, from)
	for _, slot := range g.slotsThatDiffer[next:] {
		if slot >= to {
			break
		}
		if slot > from {
			wanted = append(wanted, &slotView{n: from, alike: slot - from - 1})
		}
		wanted, from = append(wanted, &slotView{n: slot}), slot+1
	}
	if from < to {
		wanted = append(wanted, &slotView{n: from, alike: to - from - 1})
	}
	return wanted
}

// slotNeed returns what one slot lacks: an instance if it is empty, or a successor for its holder. It ignores rollouts.
func (p *pass) slotNeed(g *groupView, slot *slotView) *need {
	if slot.holder == nil {
		return p.vacancy(g, slot)
	}
	w := p.leaveReasonOf(g, slot.holder)
	if w == leaveMoved {
		return nil // the move has placed a successor already; if the successor fails, the move is canceled
	}
	if slot.successor != nil {
		return p.renewal(g, slot, w)
	}
	switch w {
	case leaveLost:
		return p.lostNeed(g, slot)
	case leaveFailed:
		return p.failedNeed(g, slot)
	case leaveRebuilt:
		return p.buildNeed(g, slot, w)
	case leaveDisabled, leaveDrained, leaveAsked, leaveTroubled, leaveUnready:
		if g.stopFirst(g.spec.Eviction.Order) || w == leaveUnready && !p.mayRetry(g, p.version(g, slot.holder), slot.holder) {
			return nil
		}
		n := p.takeover(g, slot, w, urgentMove)
		if d, ok := p.partOf(slot.holder); ok && w == leaveDrained {
			if !d.active() {
				return nil
			}
			n.look = p.overdue(&d)
		}
		return n
	}
	return nil
}

func (p *pass) takeover(g *groupView, slot *slotView, w leaveReason, u urgency) *need {
	n := &need{group: g, slot: slot.n, version: p.version(g, slot.holder), replaces: slot.holder,
		cause: w.cause(slot.holder), urgency: u}
	n.home, n.leaves = p.homeOf(g, slot.n), w == leaveUnready
	if m, ok := p.member(slot.holder); ok {
		n.build = m.Held
	}
	return n
}

// homeOf returns the node that has a slot's local volumes. It returns "" if the slot has no data or may start empty
// elsewhere.
func (p *pass) homeOf(g *groupView, slot int) model.NodeID {
	home, ok := p.state().VolumeHome(g.spec, g.id, slot)
	if ok && g.spec.Refills() && p.state().MayRefill(g.spec, g.id, slot) == nil {
		return ""
	}
	return home
}

// vacancy returns the need of a slot without a holder, or nil if the slot has to wait, for example until the last
// instance has stopped.
func (p *pass) vacancy(g *groupView, slot *slotView) *need {
	n := &need{
		group: g, slot: slot.n, more: slot.alike, version: p.version(g, slot.last), cause: model.CauseScaleUp,
		home: p.homeOf(g, slot.n),
	}
	if slot.last != nil {
		n.cause = vacancyCause(slot.last)
	}
	if why := p.held(g.id, slot.n); why != nil {
		p.reasons.noRoom(slotKey{g.id, slot.n}, why)
		return nil
	}
	if refusal := p.state().MayRefill(g.spec, g.id, slot.n); refusal != nil && refusal.Code == model.CodeQuorumNotHealthy {
		p.keepVacant(g, slot, refusal)
		return nil
	}
	if g.spec.Replicated() {
		if slot.last != nil && isFailure(slot.last.Marks.StopCause) && !p.mayRetry(g, n.version, slot.last) {
			p.noteRetryLater(g, slot)
			return nil
		}
		return p.memberVacancy(g, slot, n)
	}
	for _, old := range slot.leaving {
		if p.mustGoFirst(g, old) && !p.fence(g, old) {
			p.awaitEnd(old)
			if _, why := p.peek(n); why != nil {
				p.reasons.noRoom(slotKey{g.id, slot.n}, why)
			}
			return nil
		}
	}
	if slot.last != nil && isFailure(slot.last.Marks.StopCause) && !p.mayRetry(g, n.version, slot.last) {
		p.noteRetryLater(g, slot)
		return nil
	}
	return p.afterLeaving(g, slot, n)
}

// noteRetryLater records for an empty slot why its failed last instance isn't replaced yet. Unlike noRoom, it does not
// make lacksRoom true.
func (p *pass) noteRetryLater(g *groupView, slot *slotView) {
	if b, ok := p.reasons.blockers[slot.last.ID]; ok {
		p.reasons.slots[slotKey{g.id, slot.n}] = &unplaced{code: b.Code, message: b.Message}
	}
}

// vacancyCause returns the cause of a slot's next instance. It is the cause for which the last instance was stopped, or
// scale_up if that cause is scale_down, job_stopped, drain_timeout or not known.
func vacancyCause(last *fsm.Instance) model.Cause {
	switch last.Marks.StopCause {
	case "", model.CauseScaleDown, model.CauseJobStopped, model.CauseDrainTimeout:
		return model.CauseScaleUp
	}
	return last.Marks.StopCause
}

// awaitEnd records that a slot's next instance waits until an old one has stopped.
func (p *pass) awaitEnd(old *fsm.Instance) {
	const waits = "the next instance of its slot waits until it has stopped"
	if old.Status.Observed != model.ObservedLost {
		p.wait(old, model.CodeStopping, waits, "")
		return
	}
	name := p.nodeName(old.Node)
	p.wait(old, model.CodeNodeOffline, waits+", and its node "+name+" is offline",
		fmt.Sprintf("bring the node back; or if the machine is known to be off: outspan node confirm-dead %s --force", name))
}

// mustGoFirst reports whether a leaving instance must be confirmed stopped before its slot is filled again. This may be
// true of a pending instance too, because its agent may have started it. If several instances of the slot may run at
// once, it is false for an instance that waits for room, of which no agent knows, and for a lost one once the group's
// toleration has passed.
func (p *pass) mustGoFirst(g *groupView, old *fsm.Instance) bool {
	if g.pinned() {
		return true
	}
	order := g.spec.Eviction.Order
	if old.Marks.StopCause == model.CauseRollout {
		order = g.spec.Update.Order
	}
	if !g.stopFirst(order) || old.WaitsForRoom() || old.Status.Observed == model.ObservedFailed {
		return false
	}
	return old.Status.Observed != model.ObservedLost || !p.tolerationOver(g, old)
}

// tolerationOver reports whether a lost instance has been lost for as long as its group tolerates.
func (p *pass) tolerationOver(g *groupView, lost *fsm.Instance) bool {
	wait := model.Duration(0)
	if g.spec.Toleration.Unreachable != nil {
		wait = *g.spec.Toleration.Unreachable
	}
	return p.reached(lost.Marks.UnreadySince.Add(wait))
}

// lostNeed returns the need for a replacement of an instance whose node is offline (P17, P22). The replacement is made
// after the toleration and never during a hold. If only one instance may run, the lost one must first be known to have
// stopped.
func (p *pass) lostNeed(g *groupView, slot *slotView) *need {
	if !p.mayReplaceLost(g, slot.holder) {
		return nil
	}
	return p.takeover(g, slot, leaveLost, urgentGone)
}

func (p *pass) mayReplaceLost(g *groupView, lost *fsm.Instance) bool {
	name := p.nodeName(lost.Node)
	switch {
	case len(g.spec.Volumes) > 0 && !g.spec.Replicated() && !g.spec.Refills():
		p.block(lost, model.CodeVolumeOffline, fmt.Sprintf("its data is on node %s, which is offline", name),
			"bring the node back, or: outspan volume restore BACKUP --node NODE --attach")
	case g.spec.Replacement.Mode != model.ModeAlways && g.spec.Replacement.Mode != model.ModeWhen:
		p.block(lost, model.CodeNodeOffline, fmt.Sprintf("node %s is offline and %s is never replaced elsewhere", name, g.id),
			"bring the node back")
	case p.state().LeaseEnd(lost) != model.Never && !plant.Is(plant.ReplaceBeforeFencing):
		p.fence(g, lost) // once the instance is marked as stopped, its slot is vacant and is filled like any other
	case g.pinned() && !plant.Is(plant.ReplaceBeforeFencing):
		p.block(lost, model.CodeNodeOffline,
			fmt.Sprintf("node %s is offline: the instance is not known to have stopped, and only one may run", name),
			fmt.Sprintf("bring the node back; or if the machine is known to be off: outspan node confirm-dead %s --force", name))
	case p.onHold(lost):
	case !p.tolerationOver(g, lost):
		p.wait(lost, model.CodeReplacementPending,
			fmt.Sprintf("node %s is offline; the group tolerates that for %s", name, *g.spec.Toleration.Unreachable), "")
	case !p.replaceable(g, lost):
	case !p.mayBuild(g, lost):
	default:
		return true
	}
	return false
}

// fence marks a lost instance as stopped once its lease has ended and its group's toleration has passed. It reports
// whether it marked the instance.
func (p *pass) fence(g *groupView, lost *fsm.Instance) bool {
	end := p.state().LeaseEnd(lost)
	name := p.nodeName(lost.Node)
	switch {
	case end == model.Never || lost.Status.Observed != model.ObservedLost || p.onHold(lost):
	case !p.reached(end):
		p.wait(lost, model.CodeNodeOffline,
			fmt.Sprintf("node %s is offline: the instance may run there until its lease is over", name), "")
	case !p.tolerationOver(g, lost):
		p.wait(lost, model.CodeReplacementPending,
			fmt.Sprintf("node %s is offline; the group tolerates that for %s", name, *g.spec.Toleration.Unreachable), "")
	default:
		refusal := p.plan.try("instance/"+string(lost.ID), &fsm.InstanceFenced{ID: lost.ID})
		if refusal != nil {
			p.blockBy(lost, refusal)
		}
		return refusal == nil
	}
	return false
}

// onHold reports whether a hold keeps an instance from being replaced now. If so, it records the hold as the reason.
func (p *pass) onHold(inst *fsm.Instance) bool {
	if p.state().Hold.Active {
		p.block(inst, model.CodeHold, "too many nodes are silent at once: nothing is replaced until that is over",
			"bring the nodes back, or end the hold")
	}
	return p.state().Hold.Active
}

func (p *pass) nodeName(id model.NodeID) string {
	if n := p.node(id); n != nil {
		return n.Name
	}
	return string(id)
}

// failedNeed returns the need for a replacement of an instance that failed or never became ready. It stops the instance
// and returns nil if only one may run or the group is replicated. The slot is filled when the stop is confirmed.
func (p *pass) failedNeed(g *groupView, slot *slotView) *need {
	old := slot.holder
	version := p.version(g, old)
	if !p.mayRetry(g, version, old) {
		return nil
	}
	stop := &fsm.InstanceStop{ID: old.ID, Cause: failureCause(old), By: "failed"}
	if g.pinned() || g.spec.Replicated() { // the slot is filled after the stop, on the node with its data if possible
		if refusal := p.plan.try("instance/"+string(old.ID), stop); refusal != nil {
			p.blockBy(old, refusal)
		}
		return nil
	}
	if g.spec.Replacement.Mode == model.ModeNever && version == old.Version {
		p.block(old, model.CodeRoleNever, fmt.Sprintf("it failed and %s is never replaced", g.id),
			"restart it, or run a new version")
		return nil
	}
	if !p.replaceable(g, old) {
		return nil
	}
	n := p.takeover(g, slot, leaveFailed, urgentGone)
	if g.spec.Replacement.Mode == model.ModeRestart {
		n.home = old.Node
	}
	if old.Status.Observed != model.ObservedFailed { // an instance that is known to have failed needs no stop
		n.first, n.spare = []fsm.Command{stop}, true
	}
	return n
}

// renewal returns the need for a new successor when the present one can't take over. While the present one may still
// take over, it returns nil (P24).
func (p *pass) renewal(g *groupView, slot *slotView, w leaveReason) *need {
	next := slot.successor
	if w == leaveNone {
		return nil // the holder stays, so the successor is surplus
	}
	version, cause := p.version(g, slot.holder), model.CauseScaleDown
	if w == leaveRolled {
		version = g.row.Version
	}
	switch p.leaveReasonOf(g, next) {
	case leaveLost:
		if !p.mayReplaceLost(g, next) {
			return nil
		}
		cause = model.CauseNodeOffline
	case leaveFailed:
		if !p.mayRetry(g, version, next) || w == leaveLost && p.onHold(next) {
			return nil
		}
		cause = failureCause(next)
	case leaveUnready:
		if !p.mayRetry(g, version, next) {
			return nil
		}
		cause = model.CauseCheckFailed
	case leaveDisabled, leaveDrained, leaveAsked, leaveTroubled, leaveRebuilt:
		if p.takesOver(g, next) {
			p.wait(next, model.CodeReplacementPending, "it takes over from "+string(slot.holder.ID)+" first, and moves then", "")
			return nil
		}
	case leaveRolled:
		if w != leaveRolled {
			return nil // the successor takes over first; the rollout replaces it afterwards
		}
	default:
		return nil
	}
	if w == leaveLost && p.state().HoldsBack(slot.holder) {
		p.onHold(slot.holder)
		return nil
	}
	tooMany := w == leaveRolled && p.canarying(g) && next.Version != g.row.Version &&
		p.current(g)+g.outdated(slot.n) >= g.spec.Update.Canary
	if tooMany || p.state().NeedsPreparing(next, cause, "") {
		p.stop(next, cause, "it came to nothing") // the slot gets another successor when this one has stopped
		return nil
	}
	n := p.takeover(g, slot, w, urgentGone)
	n.version = version
	n.first, n.regardless = []fsm.Command{&fsm.InstanceStop{ID: next.ID, Cause: cause, By: "it came to nothing"}}, true
	return n
}
