package reconcile

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

// rollNeeds lists the instances of a new version that may be made now beside the old ones: first the canaries, then at
// most max_surge at a time. It returns nil if the group is not rolling or stops old instances first.
func (p *pass) rollNeeds(g *groupView) []*need {
	if !g.rolling() || g.stopFirst(g.spec.Update.Order) {
		return nil
	}
	room := g.spec.Update.MaxSurge
	for _, slot := range g.open {
		if g.hasOldVersion(slot) && slot.successor != nil {
			room--
		}
	}
	if p.canarying(g) {
		room = g.spec.Update.Canary - p.current(g) - g.outdated(math.MaxInt)
	}
	var needs []*need
	for _, slot := range p.rollable(g) {
		if slot.successor == nil && len(needs) < room {
			n := p.takeover(g, slot, leaveRolled, urgentRoll)
			n.version = g.row.Version
			needs = append(needs, n)
		}
	}
	return needs
}

// rollable lists the slots whose holder takes part in the rollout now, and has no other reason to leave than its old
// version. Slots whose holder's stop is being prepared come first, then slots on nodes to be emptied (P28), then slots
// whose holder is not ready.
func (p *pass) rollable(g *groupView) []*slotView {
	var slots []*slotView
	for _, slot := range g.open {
		if slot.holder != nil && !slot.dropped && p.leaveReasonOf(g, slot.holder) == leaveRolled &&
			p.takesPart(g, slot.holder) {
			slots = append(slots, slot)
		}
	}
	slices.SortStableFunc(slots, func(a, b *slotView) int {
		return cmp.Or(first(a.holder.Eviction.Preparing, b.holder.Eviction.Preparing),
			first(p.leaving(a.holder), p.leaving(b.holder)), first(!a.holder.Ready(), !b.holder.Ready()))
	})
	return slots
}

// takesPart reports whether a rollout includes an instance now. In a system group, it does not include an instance on a
// node that takes no new instances, or can't start its program now. Such an instance gets the new version later.
func (p *pass) takesPart(g *groupView, inst *fsm.Instance) bool {
	if !g.system() || plant.Is(plant.AbsentNodesCount) {
		return true
	}
	n := p.node(inst.Node)
	return n != nil && p.state().Eligible(n) == nil && n.Starts(g.spec) == nil
}

// canarying reports whether the group's deployment has canaries that are not promoted yet.
func (p *pass) canarying(g *groupView) bool {
	return g.rolling() && !g.deploy.Promoted && g.spec.Update.Canary > 0
}

// current returns the number of slots that have an instance of the group's version, or will get one next. The number is
// only right during a rollout, because otherwise g.quiet may include slots with an old version.
func (p *pass) current(g *groupView) int {
	n := g.quiet
	for _, slot := range g.open {
		if slot.holder != nil && slot.holder.Version == g.row.Version || slot.successor != nil &&
			slot.successor.Version == g.row.Version {
			n++
		}
	}
	empty := g.open
	if !g.system() {
		empty = p.wantedSlots(g) // the group's other empty slots stay empty
	}
	for _, slot := range empty {
		if slot.holder == nil && slot.last != nil && p.takesPart(g, slot.last) &&
			(slot.last.Version == g.row.Version || slot.last.Marks.StopCause == model.CauseRollout) {
			n++
		}
	}
	return n
}

// outdated counts the slots below before that have a holder and a successor of an old version. Each such successor is
// later replaced by an instance of the group's version.
func (g *groupView) outdated(before int) int {
	n := 0
	for _, slot := range g.open {
		if slot.n < before && g.hasOldVersion(slot) && slot.successor != nil && slot.successor.Version != g.row.Version {
			n++
		}
	}
	return n
}

// healthy reports whether an instance has been ready for at least the group's min_healthy. A member must also be in
// sync.
func (p *pass) healthy(g *groupView, inst *fsm.Instance) bool {
	return inst != nil && p.takesOver(g, inst) && p.reached(inst.Marks.ReadySince.Add(g.spec.Update.MinHealthy))
}

// available returns the number of slots with a ready instance that takes part in the rollout. An instance of the new
// version must also be healthy.
func (p *pass) available(g *groupView) int {
	n := 0
	for _, slot := range g.slots() {
		for _, inst := range [...]*fsm.Instance{slot.holder, slot.successor} {
			if inst != nil && !slot.dropped && inst.Ready() && p.takesPart(g, inst) &&
				(inst.Version != g.row.Version || p.healthy(g, inst)) {
				n++
				break
			}
		}
	}
	return n
}

// stopRolled stops instances that a new version replaces. An instance with a successor is stopped once the successor is
// healthy. An instance without a successor is stopped only if max_unavailable allows it. In a group that stops old
// instances before it makes new ones, at least one may be unavailable.
func (p *pass) stopRolled() {
	for _, g := range p.groups {
		if !g.renewing() || g.row.Count == 0 || !slices.ContainsFunc(g.open, g.hasOldVersion) {
			continue
		}
		for _, slot := range g.slots() {
			if slot.holder != nil {
				slot.holder = p.instance(slot.holder.ID)
			}
		}
		p.rollStops(g)
	}
}

// hasOldVersion reports whether a slot's holder has a version other than the group's.
func (g *groupView) hasOldVersion(slot *slotView) bool {
	return slot.holder != nil && slot.holder.Version != g.row.Version
}

func (p *pass) rollStops(g *groupView) {
	stopFirst := g.system() || g.stopFirst(g.spec.Update.Order) || p.rollsWithoutSurge(g)
	limit := g.spec.Update.MaxUnavailable
	if stopFirst {
		limit = max(limit, 1)
	}
	want := g.row.Count
	if g.system() {
		want = p.systemWant(g)
	}
	down := want - p.available(g)
	canaries := len(g.slots())
	if p.canarying(g) {
		canaries = g.spec.Update.Canary - p.current(g) - g.outdated(math.MaxInt)
	}
	for _, slot := range p.rollable(g) {
		inst := slot.holder
		switch {
		case inst.Desired != model.DesiredRunning:
		case slot.successor != nil:
			p.finishRoll(g, slot)
		case limit == 0 || down >= limit && inst.Ready():
			p.wait(inst, model.CodeReplacementPending, "it waits for its turn in the rollout", "")
		case canaries <= 0:
		case p.roomAfter(g, slot) &&
			p.stopStage(inst, model.CauseRollout, fmt.Sprintf("version %d comes", g.row.Version)) != stageRefused:
			canaries--
			if inst.Ready() {
				down++
			}
		}
	}
}

// finishRoll stops the old instance of a slot once the new one is healthy. While the group's canaries are not promoted,
// it stops nothing.
func (p *pass) finishRoll(g *groupView, slot *slotView) {
	next := slot.successor
	switch {
	case p.canarying(g):
		p.wait(slot.holder, model.CodeReplacementPending, "its canary "+string(next.ID)+" waits to be promoted",
			"outspan deployment promote "+string(g.deploy.ID))
	case next.Version == g.row.Version && p.healthy(g, next):
		p.stop(slot.holder, model.CauseRollout, "replaced by "+string(next.ID))
	default:
		p.wait(slot.holder, model.CodeReplacementPending, "its replacement "+string(next.ID)+" is not ready yet", "")
	}
}

// portsInPlace reports whether the static ports of a new version would be free on a node if the old instance were gone.
func (f *field) portsInPlace(v *nodeView, old *fsm.Instance) bool {
	for _, port := range f.spec.Ports {
		if port.Static == 0 {
			continue
		}
		owner, taken := f.pass.state().PortOwner(v.node.ID, port.Static)
		if taken && owner != old.ID || slices.Contains(v.reserved, port.Static) {
			return false
		}
	}
	return true
}

// roomAfter reports whether an instance of the new version would fit: on the old instance's node without that instance,
// or on another node now. Its image must be there too. If not, it records why.
func (p *pass) roomAfter(g *groupView, slot *slotView) bool {
	n := p.takeover(g, slot, leaveRolled, urgentRoll)
	n.version = g.row.Version
	f := p.fieldOf(g, n.version)
	if f != nil {
		if why := p.quotaAfter(n, f); why != nil {
			p.unplaced(n, why)
			return false
		}
	}
	n.secure = true
	if _, why, held := p.heldFor(n); held {
		return why == nil
	}
	v := p.candidates().view(slot.holder.Node)
	if f != nil && v != nil && f.excludeLasting(v) == "" &&
		v.free()+slot.holder.Claims.Resources.MemoryBytes >= f.claim.MemoryBytes && f.portsInPlace(v, slot.holder) {
		why := p.securedAt(n, f, v)
		if why != nil {
			p.unplaced(n, why)
		}
		return why == nil
	}
	if g.system() {
		n.home = slot.holder.Node
	}
	if why := p.secured(n); why != nil {
		p.unplaced(n, why)
		return false
	}
	return true
}
