package reconcile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// markMembers requests the eviction of members of replicated groups as the node drain policy says. It does so again in
// each decision, so a change of the policy, or of the members in sync, takes effect at once (L11, L12).
func (p *pass) markMembers() {
	for _, n := range p.policyNodes() {
		for _, inst := range p.runningMembers(n) {
			by, marks := p.state().PolicyMarks(inst)
			if !marks || inst.Eviction.Requested && !leavesTroubled(inst) {
				continue
			}
			group := []fsm.Command{
				&fsm.InstanceMark{ID: inst.ID, Requested: true, Cause: model.CauseNodeDraining, By: by, Automatic: true}}
			if inst.Eviction.Requested { // the policy takes over the eviction, and the successor if there is one
				group = []fsm.Command{&fsm.InstanceMark{ID: inst.ID}, group[0]}
			}
			if refusal := p.plan.try("node/"+string(n.ID), group...); refusal != nil {
				p.plan.refuse("node/"+string(n.ID), refusal)
			}
		}
	}
}

// policyNodes lists the nodes on which a drain policy may evict now. It returns nil while a restore is unconfirmed.
func (p *pass) policyNodes() []*fsm.Node {
	var nodes []*fsm.Node
	if p.state().Unconfirmed {
		return nil
	}
	for n := range p.state().OutOfService() {
		if n.Intent == model.IntentDisabled {
			continue
		}
		if d, running := p.drainOn(n); running && (!d.active() || p.overdue(&d)) {
			continue
		}
		if _, _, acts := p.state().PolicyOn(n); acts {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// drainOn returns a node's part of its running drain; false if the node is not in one.
func (p *pass) drainOn(n *fsm.Node) (drainPart, bool) {
	d, running := p.state().RunningDrain(n)
	if !running {
		return drainPart{}, false
	}
	part, _ := d.Node(n.ID)
	return drainPart{d, part, n}, true
}

// runningMembers lists the members on a node that are meant to run. Those that aren't ready come first.
func (p *pass) runningMembers(n *fsm.Node) []*fsm.Instance {
	var all []*fsm.Instance
	for m := range p.state().MembersOn(n.ID) {
		if m.Instance != nil && m.Instance.Desired == model.DesiredRunning {
			all = append(all, m.Instance)
		}
	}
	slices.SortStableFunc(all, func(a, b *fsm.Instance) int { return first(!a.Ready(), !b.Ready()) })
	return all
}

// memberReasonGone reports whether the reason for a member's eviction is gone. An eviction that a user requested loses
// its reason only if the node is offline or forgotten.
func (p *pass) memberReasonGone(inst *fsm.Instance) bool {
	n := p.node(inst.Node)
	if n == nil || n.Health == model.HealthOffline {
		return true
	}
	_, marks := p.state().PolicyMarks(inst)
	if inst.Eviction.Automatic {
		return !marks
	}
	// Here, an eviction for a drain prepares a stop in place. The reason for that stop is gone if the policy wants the
	// member evicted after all, or if the drain is over.
	return inst.Eviction.Cause == model.CauseNodeDraining && (marks || !p.evicting(inst))
}

// member returns an instance as a member of its replicated group; false if its group is not replicated.
func (p *pass) member(inst *fsm.Instance) (fsm.Member, bool) { return p.state().MemberOf(inst) }

func (p *pass) isMember(inst *fsm.Instance) bool {
	_, ok := p.member(inst)
	return ok
}

// rebuilt reports whether an instance is a member to be evicted whose copy must first be built elsewhere.
func (p *pass) rebuilt(inst *fsm.Instance) bool {
	return inst.Eviction.Requested &&
		(inst.Eviction.Automatic || inst.Eviction.Cause == model.CauseUser || leavesTroubled(inst)) && p.isMember(inst)
}

// buildNeed returns the need for the extra member that takes over from a member to be evicted (L13). It returns nil for
// a group with one holder, or while the node's drain is not active. After the drain's deadline, the need only looks for
// room.
func (p *pass) buildNeed(g *groupView, slot *slotView, w leaveReason) *need {
	if g.pinned() {
		return nil
	}
	n := p.takeover(g, slot, w, urgentMove)
	if d, running := p.drainOn(p.node(slot.holder.Node)); running {
		if !d.active() {
			return nil
		}
		n.look = p.overdue(&d)
	}
	return n
}

// stopRebuilt stops a member that is to be evicted, once its successor is in sync. A member of a group with one holder
// is stopped as soon as a replacement would fit. If there is no successor, only accepted downtime lets it stop.
func (p *pass) stopRebuilt(g *groupView, slot *slotView) {
	inst := slot.holder
	next, ok := p.state().Successor(inst)
	switch {
	case g.pinned():
		if why := p.secured(p.takeover(g, slot, leaveRebuilt, urgentMove)); why != nil {
			p.unplaced(&need{group: g, slot: slot.n, replaces: inst}, why)
			return
		}
		p.stopMember(inst)
	case ok && p.state().Covers(next):
		p.stopMember(inst)
	case ok:
		p.wait(inst, model.CodeReplicaEvicting,
			fmt.Sprintf("its copy is built by %s on node %s, which is %s and not in sync yet", next.ID, p.nodeName(next.Node),
				next.Status.Observed), "it becomes in sync")
	default:
		if d, running := p.drainOn(p.node(inst.Node)); running {
			p.acceptDowntime(&d, inst)
		}
	}
	p.nameVolume(inst)
}

// stopMember begins the stop of a member for the cause of its eviction.
func (p *pass) stopMember(inst *fsm.Instance) {
	d, running := p.drainOn(p.node(inst.Node))
	switch {
	case leavesTroubled(inst):
		p.stop(inst, model.CauseNodeNotReady, inst.Eviction.By)
	case !inst.Eviction.Automatic:
		p.stopWith(inst, &fsm.InstanceStop{ID: inst.ID, Cause: model.CauseUser, By: inst.Eviction.By, Asked: true})
	case running:
		p.stopFor(&d, inst)
	default:
		p.stop(inst, model.CauseNodeDraining, fsm.ByPolicy)
	}
}

// stopInPlace stops the members on draining nodes that the policy neither evicts nor keeps running. Their copies stay
// on the node, and the members start with them again when the node is uncordoned. If a member keeps a drain from
// ending, stopInPlace records why.
func (p *pass) stopInPlace() {
	for _, part := range p.running() {
		if !part.active() {
			continue
		}
		for _, inst := range p.runningMembers(part.node) {
			m, _ := p.member(inst)
			policy, last := p.state().PolicyFor(part.drain), p.state().Last(m)
			switch {
			case p.rebuilt(inst) || inst.Eviction.Cause.IsMove() || m.Marked(policy, last):
			case m.Blocks(policy, last):
				p.block(inst, model.CodeLastHealthy, p.lastText(m), p.unblockLast(m))
				p.nameVolume(inst)
			default:
				p.stopFor(&part, inst)
				p.nameVolume(inst)
			}
		}
	}
}

// lastText returns a message that says why a member has the last copy.
func (p *pass) lastText(m fsm.Member) string {
	if m.Instance != nil {
		return fmt.Sprintf("it is the last copy of %s: no other member is in sync on another node that stays", m.Group)
	}
	return fmt.Sprintf("slot %d of %s has its last copy here: no member is in sync on another node that stays",
		m.Slot, m.Group)
}

// unblockLast returns what would let a drain go on despite the last copy.
func (p *pass) unblockLast(m fsm.Member) string {
	if g, ok := p.state().Groups.Get(m.Group); ok && g.Count == 0 {
		job, _ := m.Group.Split()
		return fmt.Sprintf("run the job, remove its data with: outspan job stop %s --purge; or drain with --policy %s",
			job, model.PolicyAllowStopped)
	}
	return fmt.Sprintf("let another member get in sync, or drain with --policy %s (build it elsewhere) or %s",
		model.PolicyEvictLast, model.PolicyAlwaysAllow)
}

// nameVolume adds the member's volume to the reason recorded for its instance.
func (p *pass) nameVolume(inst *fsm.Instance) {
	if b, noted := p.reasons.blockers[inst.ID]; noted {
		if m, ok := p.member(inst); ok {
			b.Volume = m.Volume
			p.reasons.blockers[inst.ID] = b
		}
	}
}

// keptBlockers returns a blocker for each copy on a node that keeps the node's drain from ending and that no instance
// uses. It returns nil if the node is offline.
func (p *pass) keptBlockers(d *drainPart) []model.Blocker {
	if d.node.Health == model.HealthOffline {
		return nil
	}
	var out []model.Blocker
	for m := range p.state().MembersOn(d.node.ID) {
		if m.Instance != nil {
			continue
		}
		refusal := p.state().MemberBlocks(m, p.state().PolicyFor(d.drain))
		if refusal == nil {
			continue
		}
		b := model.Blocker{Code: refusal.Code, Volume: m.Volume, Message: p.lastText(m), Unblock: p.unblockLast(m)}
		if last := p.lastOf(m); last != nil {
			b.Instance = last.ID
		}
		if refusal.Code == model.CodeReplicaEvicting {
			b.Message = fmt.Sprintf("slot %d of %s has a copy here that stays until the slot's new copy is in sync",
				m.Slot, m.Group)
			if why := p.reasons.slot(slotKey{m.Group, m.Slot}); why != nil {
				b.Message += ": " + why.message
			}
		}
		out = append(out, b)
	}
	return out
}

// lastOf returns the newest instance that used a kept copy; nil if no such instance is remembered.
func (p *pass) lastOf(m fsm.Member) *fsm.Instance {
	var last *fsm.Instance
	for inst := range p.state().InstancesInSlot(m.Group, m.Slot) {
		if inst.Node == m.Node && (last == nil || older(last, inst) < 0) {
			last = inst
		}
	}
	return last
}

// source reports whether a group has a member in sync, from which a new copy can be built.
func (p *pass) source(g *groupView) bool {
	for inst := range p.state().InstancesOf(g.id) {
		if p.state().InSync(inst) {
			return true
		}
	}
	return false
}

// newestFirst orders copies by when they were made, the newest first.
func newestFirst(a, b *fsm.Volume) int {
	return cmp.Or(cmp.Compare(b.Made, a.Made), cmp.Compare(a.ID, b.ID))
}

// member returns the forecast for a member: it is rebuilt elsewhere, is stopped while its copy stays, or keeps the
// drain from ending.
func (f *forecaster) member(out model.Forecast, d *drainPart, inst *fsm.Instance) model.Forecast {
	m, _ := f.before.MemberOf(inst)
	policy, last := f.p.in.State.PolicyFor(d.drain), f.p.in.State.Last(m)
	switch {
	case m.Marked(policy, last):
		out.Action, out.Target = model.ActionMove, f.target(inst)
	case m.Blocks(policy, last):
		out.Action = model.ActionWait
	default:
		out.Action = model.ActionStop
	}
	b, blocked := f.p.blockerOf(d, inst)
	if blocked && b.Code != model.CodeReplacementPending && b.Code != model.CodeStopping &&
		b.Code != model.CodeReplicaEvicting {
		out.Blocker, out.Never, out.Action = &b, lasting(b.Code), model.ActionWait
	}
	return out
}

// kept returns a forecast for each copy that no instance uses and that keeps the drain from ending, now or at the end
// of the rehearsal.
func (f *forecaster) kept(id model.NodeID) []model.Forecast {
	n, _ := f.p.state().Nodes.Get(id)
	part, _ := f.drain.Node(id)
	now, atLast := f.p.keptBlockers(&drainPart{f.drain, part, n}), f.rehearsal.kept(id)
	var out []model.Forecast
	add := func(b model.Blocker, never bool) {
		v, _ := f.before.Volumes.Get(b.Volume)
		out = append(out, model.Forecast{Node: id, Instance: b.Instance, Group: v.Group, Class: model.Stateful,
			Action: model.ActionLeave, Blocker: &b, Never: never})
	}
	names := func(volume model.VolumeID) func(model.Blocker) bool {
		return func(b model.Blocker) bool { return b.Volume == volume }
	}
	for _, b := range now {
		add(b, slices.ContainsFunc(atLast, names(b.Volume)))
	}
	for _, b := range atLast {
		if !slices.ContainsFunc(now, names(b.Volume)) {
			add(b, true)
		}
	}
	return out
}
