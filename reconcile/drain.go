package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

const (
	budgetRetry = 2 * model.Second  // a stop that a budget refused is tried again after this time at the latest (B7)
	forcedWait  = 30 * model.Second // how long agents have to confirm the kills of a forced deadline
	namedAtMost = 20                // maximum number of reasons that a last error names
)

// drainPart is one node of a running drain.
type drainPart struct {
	drain *fsm.Drain
	part  fsm.DrainNode
	node  *fsm.Node
}

// running lists the nodes that drains are still draining, each with its drain. It returns nothing while a restore is
// not confirmed.
func (p *pass) running() []drainPart {
	var parts []drainPart
	s := p.state()
	for _, d := range s.Drains.All() {
		if d.EndedIndex != 0 || s.Unconfirmed { // a drain from a restored snapshot may have ended after the snapshot was made
			continue
		}
		for _, part := range d.Nodes {
			if n, ok := s.Nodes.Get(part.Node); ok && part.Phase == model.PhaseDraining {
				parts = append(parts, drainPart{d, part, n})
			}
		}
	}
	return parts
}

// takeTurns gives nodes their turn, in the order in which their drain lists them. At most max_parallel_nodes nodes of
// one drain have their turn at once. A paused drain gives no turns.
func (p *pass) takeTurns() {
	busy := map[model.DrainID]int{}
	parts := p.running()
	for _, d := range parts {
		if d.part.Turn {
			busy[d.drain.ID]++
		}
	}
	for _, d := range parts {
		limit := d.drain.Options.MaxParallelNodes
		if d.part.Turn || d.drain.Paused || limit > 0 && busy[d.drain.ID] >= limit {
			continue
		}
		// never refused: fewer nodes than the limit have their turn
		_ = p.plan.try(d.subject(), &fsm.DrainTurn{ID: d.drain.ID, Node: d.node.ID})
		busy[d.drain.ID]++
	}
}

func (d *drainPart) subject() string { return fmt.Sprintf("drain/%s/%s", d.drain.ID, d.node.ID) }

// active reports whether the drain may evict instances from this node now.
func (d *drainPart) active() bool {
	return d.part.Turn && !d.drain.Paused && d.node.Health != model.HealthOffline
}

// overdue reports whether the part's deadline has passed. After the deadline the drain begins no more stops. It only
// collects what blocks the remaining instances, for the last error.
func (p *pass) overdue(d *drainPart) bool { return p.in.Now >= d.part.Deadline }

// leavable reports whether the drain may stop an instance at all. Only a drain with force may stop an instance that
// must not be evicted.
func (p *pass) leavable(d *fsm.Drain, inst *fsm.Instance) bool {
	return d.Options.Force || p.state().Movable(inst) == nil
}

func (p *pass) isSystem(inst *fsm.Instance) bool {
	g, ok := p.state().Groups.Get(inst.Group)
	return ok && g.Role == model.RoleSystem
}

// markEvictions requests the eviction of instances because of drains, drain policies and troubles of nodes. It also
// cancels evictions whose reason is gone. A drain marks instances of system groups last, after all others have stopped.
func (p *pass) markEvictions() {
	for _, d := range p.running() {
		if !d.active() || p.overdue(&d) {
			continue
		}
		var marks []fsm.InstanceMark
		others := 0
		for inst := range p.state().InstancesOn(d.node.ID) {
			if !inst.Terminal() && !p.isSystem(inst) && p.leavable(d.drain, inst) {
				others++
			}
		}
		for inst := range p.state().InstancesOn(d.node.ID) {
			if p.toMark(&d, inst, others) {
				marks = append(marks,
					fsm.InstanceMark{ID: inst.ID, Requested: true, Cause: model.CauseNodeDraining, By: string(d.drain.ID)})
			}
		}
		for _, mark := range marks {
			group := []fsm.Command{&mark}
			// an eviction with another reason is canceled first, or the new mark would do nothing; a successor is kept
			if p.instance(mark.ID).Eviction.Requested {
				group = []fsm.Command{&fsm.InstanceMark{ID: mark.ID}, &mark}
			}
			if refusal := p.plan.try(d.subject(), group...); refusal != nil {
				p.plan.refuse(d.subject(), refusal)
			}
		}
	}
	p.markMembers()
	p.markTroubled()
	p.unmark()
}

func (p *pass) toMark(d *drainPart, inst *fsm.Instance, others int) bool {
	if inst.Desired != model.DesiredRunning || inst.Eviction.Requested && !inst.Eviction.Cause.IsMove() &&
		!leavesTroubled(inst) && !inst.Eviction.Surge || inst.Status.Observed == model.ObservedLost ||
		!p.leavable(d.drain, inst) || p.isMember(inst) {
		return false
	}
	return !p.isSystem(inst) || others == 0 && !d.drain.Options.IgnoreSystem
}

// unmark cancels evictions whose reason disappeared before the stop began (L12, L14).
func (p *pass) unmark() {
	for _, id := range p.marked {
		inst := p.instance(id)
		if inst.Desired != model.DesiredRunning || !inst.Eviction.Requested || !p.reasonGone(inst) {
			continue
		}
		_ = p.plan.try("instance/"+string(id), &fsm.InstanceMark{ID: id}) // never refused: the instance is to run
	}
}

func (p *pass) reasonGone(inst *fsm.Instance) bool {
	if leavesTroubled(inst) {
		return p.troubleGone(inst)
	}
	if p.isMember(inst) && !inst.Eviction.Cause.IsMove() {
		return p.memberReasonGone(inst)
	}
	if inst.Eviction.Cause.IsMove() {
		return p.moveGone(inst)
	}
	if inst.Eviction.Cause != model.CauseNodeDraining {
		return false
	}
	_, ok := p.partOf(inst)
	return !ok
}

// partOf returns the drain that requested an instance's eviction, with the part of the instance's node. It returns
// false unless that part is still draining.
func (p *pass) partOf(inst *fsm.Instance) (drainPart, bool) {
	n := p.node(inst.Node)
	d, ok := p.state().Drains.Get(model.DrainID(inst.Eviction.By))
	if n == nil || !ok {
		return drainPart{}, false
	}
	part, ok := d.Node(inst.Node)
	return drainPart{d, part, n}, ok && part.Phase == model.PhaseDraining
}

// evicting reports whether the drain that requested an instance's eviction is still draining its node, even if the
// drain is paused. It returns false while a restore is not confirmed.
func (p *pass) evicting(inst *fsm.Instance) bool {
	_, ok := p.partOf(inst)
	return ok && !p.state().Unconfirmed
}

// stopEvicted stops instances that have to leave their node and can leave now, because their replacement can take over
// or they need no replacement. A stop that a budget refuses is tried again later. While a restore is not confirmed,
// only evictions that operators requested continue.
func (p *pass) stopEvicted() {
	p.stopAsked()
	if p.state().Unconfirmed {
		return
	}
	for _, g := range p.groups {
		for _, slot := range p.evictable(g) {
			switch p.leaveReasonOf(g, slot.holder) {
			case leaveDisabled:
				p.stop(slot.holder, model.CauseNodeDisabled, "node "+p.nodeName(slot.holder.Node)+" is disabled")
			case leaveRebuilt:
				p.stopRebuilt(g, slot)
			case leaveDrained:
				p.stopDrained(g, slot)
			case leaveTroubled:
				p.stopTroubled(g, slot, leaveTroubled, slot.holder.Eviction.By)
			case leaveUnready:
				if slot.successor != nil || p.mayRetry(g, p.version(g, slot.holder), slot.holder) {
					p.stopTroubled(g, slot, leaveUnready, "not ready")
				}
			case leaveMoved:
				p.stopMoved(slot)
			case leaveFailed:
				if p.evicting(slot.holder) { // the instance does not serve, so waiting for a replacement would gain nothing
					d, _ := p.partOf(slot.holder)
					p.stopFor(&d, slot.holder)
				}
			}
		}
	}
}

// evictable lists the slots whose holder has to leave its node, or has been unready for too long, and is not yet
// stopping. Holders that are not ready come first, then holders whose version is not the group's.
func (p *pass) evictable(g *groupView) []*slotView {
	var slots []*slotView
	for _, slot := range g.open {
		if slot.holder == nil || slot.dropped || !p.leaving(slot.holder) && !leavesTroubled(slot.holder) &&
			!p.moving(slot.holder) && !p.rebuilt(slot.holder) &&
			!p.unreadyLong(g, slot.holder) {
			continue
		}
		if now := p.instance(slot.holder.ID); now.Desired == model.DesiredRunning {
			slot.holder = now
			slots = append(slots, slot)
		}
	}
	slices.SortStableFunc(slots, func(a, b *slotView) int {
		return cmp.Or(first(!a.holder.Ready(), !b.holder.Ready()),
			first(a.holder.Version != g.row.Version, b.holder.Version != g.row.Version))
	})
	return slots
}

// stopDrained stops an instance that a drain evicts, if the instance can leave now. With surge, its replacement must be
// able to take over. With stop_first, a replacement must fit somewhere. If no replacement fits, the instance is only
// stopped if the operator accepted downtime (P30).
func (p *pass) stopDrained(g *groupView, slot *slotView) {
	inst := slot.holder
	d, _ := p.partOf(inst)
	switch {
	case g.system(), p.state().Movable(inst) != nil: // none of these is replaced elsewhere
		p.stopFor(&d, inst)
	case g.stopFirst(g.spec.Eviction.Order):
		n := p.takeover(g, slot, leaveDrained, urgentMove)
		if why := p.secured(n); why != nil {
			p.unplaced(n, why)
			p.acceptDowntime(&d, inst)
			return
		}
		p.stopFor(&d, inst)
	default:
		p.stopSurged(&d, g, inst)
	}
}

func (p *pass) stopSurged(d *drainPart, g *groupView, inst *fsm.Instance) {
	next, ok := p.state().Successor(inst)
	switch {
	case !ok:
		if why := p.state().MustStopFirst(inst); why != nil {
			p.stopWithoutSurge(d, g, inst, why)
			return
		}
		p.acceptDowntime(d, inst)
	case p.state().Covers(next):
		p.stopFor(d, inst)
	default:
		p.wait(inst, model.CodeReplacementPending,
			fmt.Sprintf("its replacement %s on node %s is %s", next.ID, p.nodeName(next.Node), next.Status.Observed),
			"it becomes ready")
	}
}

// acceptDowntime stops an instance whose replacement fits nowhere, if the operator accepted downtime for its group. The
// caller must have recorded why no replacement fits.
func (p *pass) acceptDowntime(d *drainPart, inst *fsm.Instance) {
	if c, pulls := p.state().PullOf(inst.Group, inst.Slot); pulls && !(c.Bare() && p.state().Pulled(c)) {
		return // there is room, or the image for a preemption is on its way
	}
	if d.drain.Options.AcceptsDowntime(inst.Group) {
		p.stopFor(d, inst)
	}
}

// stopFor begins a drain's stop of an instance, or records what blocks the stop. It does nothing while the drain is not
// active on the node. After the deadline it begins no stop.
func (p *pass) stopFor(d *drainPart, inst *fsm.Instance) {
	c := &fsm.InstanceStop{ID: inst.ID, Cause: model.CauseNodeDraining, By: string(d.drain.ID)}
	if !d.active() || p.state().Unconfirmed {
		return
	}
	if p.overdue(d) {
		if refusal, _ := p.state().CheckBudget(inst, c.Cause); refusal != nil {
			p.blockBy(inst, refusal)
		}
		if refusal := p.state().MayEvict(inst, c.Cause, c.By, p.state().BeforeHook(inst)); refusal != nil {
			p.blockBy(inst, refusal)
		} else if inst.Eviction.Failure != "" {
			p.blockBy(inst, model.Refuse(model.CodeHookFailed, "%s", inst.Eviction.Failure))
		}
		return
	}
	stage, refusal := p.stopAs(d.subject(), c)
	// Accepted downtime lets the stop bypass min_ready, but not the rates, if an instance of the group can't be placed. It
	// bypasses nothing if a budget is declared as blocking, or if agents have not reported since a restore.
	if refusal != nil && refusal.Code == model.CodeBudgetMinReady && d.drain.Options.AcceptsDowntime(inst.Group) &&
		p.reasons.lacksRoom(inst.Group) && !p.keepsAll(inst.Group) && !p.state().Unheard(inst.Group) {
		bypass := *c
		bypass.Bypass = true
		stage, refusal = p.stopAs(d.subject(), &bypass)
	}
	if refusal != nil {
		p.retryStop(inst, c.Cause, refusal)
		return
	}
	if stage == stageBegun {
		delete(p.reasons.blockers, inst.ID)
	}
}

// retryStop records why a stop was refused. It asks for a decision when a budget could allow the stop, and after
// budgetRetry at the latest.
func (p *pass) retryStop(inst *fsm.Instance, cause model.Cause, refusal *model.Error) {
	p.blockBy(inst, refusal)
	if _, next := p.state().CheckBudget(inst, cause); next > p.in.Now && next != model.Never {
		p.plan.wakeAt(next)
		p.plan.rated = min(p.plan.rated, next)
	}
	p.plan.retryAt(p.in.Now.Add(budgetRetry))
}

// endDrains ends drains on nodes that are drained or whose deadline has passed. At a forced deadline it first kills the
// instances and waits for at most forcedWait.
func (p *pass) endDrains() {
	for _, d := range p.running() {
		left := p.state().DrainLeft(d.drain, d.node)
		switch {
		case left == nil && d.part.Turn:
			p.end(&d, model.PhaseDrained, "")
		case !d.part.Turn || !p.reached(d.part.Deadline):
		case d.drain.Options.ForceAtDeadline && d.part.Deadline > p.state().Confirmed && p.force(&d):
			// forced kills are skipped if the deadline passed before the restore was confirmed
		default:
			p.end(&d, model.PhaseFailed, p.lastError(&d))
		}
	}
}

func (p *pass) end(d *drainPart, phase model.DrainPhase, lastError string) {
	c := &fsm.DrainEnd{ID: d.drain.ID, Node: d.node.ID, Phase: phase, LastError: lastError}
	if refusal := p.plan.note(c); refusal != nil {
		p.plan.refuse(d.subject(), refusal)
	}
}

// force kills at once all instances that the drain may stop. It reports whether to wait for agents to confirm the
// kills.
func (p *pass) force(d *drainPart) bool {
	var kills [][]fsm.Command
	for inst := range p.state().InstancesOn(d.node.ID) {
		switch {
		case inst.Terminal():
		case inst.Desired == model.DesiredDraining, p.state().InGrace(inst):
			kills = append(kills, []fsm.Command{&fsm.InstanceKill{ID: inst.ID, Now: true}})
		case inst.Desired == model.DesiredRunning && p.leavable(d.drain, inst) &&
			!(p.isSystem(inst) && d.drain.Options.IgnoreSystem):
			kills = append(kills, []fsm.Command{
				&fsm.InstanceStop{ID: inst.ID, Cause: model.CauseDrainTimeout, By: string(d.drain.ID), Bypass: true},
				&fsm.InstanceKill{ID: inst.ID, Now: true},
			})
		}
	}
	for _, kill := range kills {
		if refusal := p.plan.try(d.subject(), kill...); refusal != nil {
			p.plan.refuse(d.subject(), refusal)
		}
	}
	left := p.state().DrainLeft(d.drain, d.node)
	return left != nil && left.Code == model.CodeStopping && !p.reached(d.part.Deadline.Add(forcedWait))
}

// lastError returns why a node could not be drained: each reason once, at most namedAtMost of them. It never returns
// "".
func (p *pass) lastError(d *drainPart) string {
	var all []model.Blocker
	for inst := range p.state().InstancesOn(d.node.ID) {
		if b, blocked := p.blockerOf(d, inst); blocked {
			all = append(all, b)
		}
	}
	var lines []string
	sums := model.SumBlockers(append(all, p.keptBlockers(d)...))
	for _, sum := range sums[:min(len(sums), namedAtMost)] {
		lines = append(lines, blockerLine(sum))
	}
	if more := len(sums) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more reasons", more))
	}
	if left := p.state().DrainLeft(d.drain, d.node); len(lines) == 0 && left != nil {
		return string(left.Code) + ": " + left.Message
	}
	if len(lines) == 0 {
		return "the deadline passed"
	}
	return strings.Join(lines, "; ")
}

func blockerLine(sum model.BlockerSum) string {
	names := []string{sum.Who(), sum.What()}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	if len(names) == 0 {
		return string(sum.Code) + ": " + sum.Message
	}
	return string(sum.Code) + ": " + strings.Join(names, ", ") + ": " + sum.Message
}
