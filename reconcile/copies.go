package reconcile

import (
	"fmt"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

const (
	buildsPerNode = 2 // copies that may be built on one node at the same time, over all groups
	// after this many failures of a member's version on the node of its copy, the member's copy is built elsewhere instead
	failuresHome = 2
)

// memberVacancy completes n, the need of a replicated group's slot that has no holder. It returns nil if the slot has
// to wait. The next instance starts on a copy of the slot, if a node with a copy takes instances. Otherwise, or if the
// version fails too often on that node, the instance starts elsewhere with an empty copy. Building that copy needs
// another member in sync.
func (p *pass) memberVacancy(g *groupView, slot *slotView, n *need) *need {
	copies := slices.DeleteFunc(p.state().CopiesOf(g.id, slot.n), func(v *fsm.Volume) bool { return !v.Held })
	if len(copies) == 0 {
		return n
	}
	home := p.usableCopy(slot, copies)
	if home != "" && !(p.failsAt(g, n.version, home) && p.source(g)) {
		if busy := p.stoppingAt(slot, home); busy != nil {
			p.wait(busy, model.CodeStopping, "the next instance of its slot waits until it has stopped", "")
			p.reasons.noRoom(slotKey{g.id, slot.n},
				&unplaced{code: model.CodeReplacementPending, message: "the last instance of the slot is stopping"})
			return nil
		}
		n.home = home
		return n
	}
	n.build = true
	if home != "" {
		return n
	}
	where := p.nodeName(copies[0].Home)
	if !p.source(g) {
		why := &unplaced{code: model.CodeVolumeNoNode,
			message: fmt.Sprintf("its copy is on node %s, which takes nothing now, and no other member is in sync to build from",
				where)}
		if node := p.node(copies[0].Home); node != nil && node.Health == model.HealthOffline {
			why.code, why.message = model.CodeVolumeOffline,
				fmt.Sprintf("its copy is on node %s, which is offline, and no other member is in sync to build from", where)
		}
		p.unplaced(n, why)
		return nil
	}
	if at := p.tolerates(g, slot, copies); !p.reached(at) {
		p.reasons.noRoom(slotKey{g.id, slot.n},
			&unplaced{code: model.CodeReplacementPending,
				message: fmt.Sprintf("its copy is kept on node %s; another one is built elsewhere in %s", where,
					at.Left(p.in.Now))})
		return nil
	}
	return n
}

// usableCopy returns the node where a slot's instance can start again on a copy, or "" if there is no such node. It
// prefers the copy on the node of the last instance, and after that newer copies. It sorts the slice copies in this
// order.
func (p *pass) usableCopy(slot *slotView, copies []*fsm.Volume) model.NodeID {
	slices.SortFunc(copies, newestFirst)
	if slot.last != nil {
		slices.SortStableFunc(copies, func(a, b *fsm.Volume) int {
			return first(a.Home == slot.last.Node, b.Home == slot.last.Node)
		})
	}
	for _, v := range copies {
		if n := p.node(v.Home); n != nil && p.state().Eligible(n) == nil {
			return v.Home
		}
	}
	return ""
}

// stoppingAt returns the slot's instance that is stopping on the node and still uses the copy there, or nil.
func (p *pass) stoppingAt(slot *slotView, node model.NodeID) *fsm.Instance {
	for _, inst := range slot.leaving {
		if inst.Node == node {
			return inst
		}
	}
	return nil
}

// failsAt reports whether a version of a group has failed too often on a node within the group's reschedule interval.
func (p *pass) failsAt(g *groupView, version uint64, node model.NodeID) bool {
	n := 0
	for _, x := range g.row.Failures {
		if x.Node == node && x.Version == version && x.Reason != goneFromNode &&
			x.At.Add(g.spec.Reschedule.Interval) > p.in.Now {
			n++
		}
	}
	return n >= failuresHome
}

// tolerates returns the time from which a slot may get a new copy elsewhere, while no node with a copy of the slot
// takes instances. It returns 0, which means at once, if the drain policy evicts every member from the node of the
// first copy, or if the slot's last instance has been forgotten.
func (p *pass) tolerates(g *groupView, slot *slotView, copies []*fsm.Volume) model.Time {
	for _, n := range p.policyNodes() {
		if policy, _, _ := p.state().PolicyOn(n); policy == model.PolicyEvictAll && n.ID == copies[0].Home {
			return 0
		}
	}
	if slot.last == nil {
		return 0
	}
	wait := model.Duration(0)
	if g.spec.Toleration.Unreachable != nil {
		wait = *g.spec.Toleration.Unreachable
	}
	return slot.last.Marks.StopBegan.Add(wait)
}

// builds reports whether an instance is an extra member whose copy is still being built: the copy was never in sync,
// and the slot has a copy with data on another node.
func (p *pass) builds(inst *fsm.Instance) bool {
	m, ok := p.member(inst)
	if !ok || m.Held || !inst.Wanted() {
		return false
	}
	return slices.ContainsFunc(p.state().CopiesOf(m.Group, m.Slot), func(v *fsm.Volume) bool {
		return v.Held && v.Home != m.Node
	})
}

// oneBuild lets a replicated group build at most one extra member at a time. Any further need that would build a member
// is only checked for room and not placed.
func (p *pass) oneBuild(g *groupView, needs []*need) []*need {
	if !g.spec.Replicated() {
		return needs
	}
	var busy *fsm.Instance
	for inst := range p.state().InstancesOf(g.id) {
		if p.builds(inst) {
			busy = inst
		}
	}
	begun := false
	for _, n := range needs {
		switch {
		case !n.build || n.look || len(n.first) > 0: // with commands in first, the need replaces a failed build
			continue
		case busy == nil && !begun:
			begun = true
			continue
		}
		n.look = true // so that a forecast already shows whether the member will fit
		text := "another member of its group is built first"
		if busy != nil {
			text = fmt.Sprintf("member %s of its group is built first, on node %s", busy.ID, p.nodeName(busy.Node))
		}
		if n.replaces != nil {
			p.wait(n.replaces, model.CodeReplicaEvicting, text, "")
			p.nameVolume(n.replaces)
		} else {
			p.reasons.noRoom(slotKey{g.id, n.slot}, &unplaced{code: model.CodeReplacementPending, message: text})
		}
	}
	return needs
}

// keptApart returns why a need of a replicated group can't be met on a node, or "" if it can. A member of the group may
// be on the node or return to it, or the node may already build too many copies.
func (p *pass) keptApart(n *need, node model.NodeID) model.Code {
	if !n.group.spec.Replicated() {
		return ""
	}
	if _, unknown := p.state().UnknownMember(n.group.id, node); unknown {
		return model.CodeAntiAffinity
	}
	building := 0
	for m := range p.state().MembersOn(node) {
		if m.Group == n.group.id && (m.Instance != nil || m.Slot != n.slot && m.Held && p.waitsForCopy(n.group, m.Slot)) {
			return model.CodeAntiAffinity
		}
		if m.Instance != nil && p.builds(m.Instance) {
			building++
		}
	}
	if n.build && building >= buildsPerNode {
		return model.CodeReplicaEvicting
	}
	return ""
}

// waitsForCopy reports whether a slot is wanted but has no instance that should run. The slot's next instance may then
// start on the slot's copy.
func (p *pass) waitsForCopy(g *groupView, slot int) bool {
	if slot >= g.row.Count {
		return false
	}
	for inst := range p.state().InstancesInSlot(g.id, slot) {
		if inst.Desired == model.DesiredRunning {
			return false
		}
	}
	return true
}

// mayBuild reports whether a lost instance may be replaced on another node, and records the reason if it may not. If
// the instance's copy has data, another member must be in sync. Otherwise the new, empty copy would count as a member
// although the real data can't be reached.
func (p *pass) mayBuild(g *groupView, lost *fsm.Instance) bool {
	m, ok := p.member(lost)
	if !ok || !m.Held || p.source(g) {
		return true
	}
	name := p.nodeName(lost.Node)
	p.block(lost, model.CodeVolumeOffline,
		fmt.Sprintf("its copy is on node %s, which is offline, and no other member is in sync to build from", name),
		fmt.Sprintf("bring the node back, or give its data up: outspan node confirm-dead %s, outspan node forget %s",
			name, name))
	p.nameVolume(lost)
	return false
}

// takesOver reports whether a replacement can take over now. The replacement must be ready. In a replicated group it
// must also be in sync, unless the instance that it replaces never had data.
func (p *pass) takesOver(g *groupView, inst *fsm.Instance) bool {
	return inst.Ready() && (!g.spec.Replicated() || p.state().Covers(inst))
}

// apart marks the nodes that a replicated group's slot can't use because of another member. It changes the slice all in
// place and returns it.
func (e *Explanation) apart(g *groupView, slot int, all []model.Considered) []model.Considered {
	for i := range all {
		if code := e.p.keptApart(&need{group: g, slot: slot}, all[i].Node); code != "" && all[i].ExcludedBy == "" {
			all[i].ExcludedBy, all[i].Score = code, 0
		}
	}
	return all
}

// unbuilt records why a member's copy can't be built elsewhere now.
func (p *pass) unbuilt(inst *fsm.Instance, why *unplaced) {
	if why.code == model.CodeReplicaEvicting {
		p.wait(inst, why.code, "the nodes where its copy could be built take no more builds now: "+why.message,
			unblockPlacement(why.code))
	} else {
		p.block(inst, model.CodeNoCandidate, "its copy can be built nowhere: "+why.message, unblockPlacement(why.code))
	}
	p.nameVolume(inst)
}
