package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// urgency orders the needs of one class. Needs of the lowest value are met first.
type urgency int

const (
	urgentGone urgency = iota // the slot is empty
	urgentMove                // the slot's instance must leave
	urgentRoll                // the slot's instance has an old version
)

// need is an instance that a group lacks, or several equal instances for consecutive slots.
type need struct {
	group    *groupView
	slot     int
	more     int // number of following slots with the same need
	version  uint64
	replaces *fsm.Instance // the holder that the new instance takes over from; nil if the slot is empty
	cause    model.Cause
	urgency  urgency
	home     model.NodeID  // the only possible node; "" means that any node may do
	homes    []*fsm.Node   // for a system group: the node of this and of each following slot; nil means that home applies
	first    []fsm.Command // commands for the same group as the placement, such as the stop of a failed successor
	look     bool          // only reserve room with peek; place nothing
	build    bool          // the instance makes an extra copy of the group's data
	leaves   bool          // the new instance must not be on the replaced one's node

	secure bool // the replaced instance stops first: peek also claims the node and orders the image there

	spare      bool // if the commands in first are refused, place without them
	regardless bool // if nothing fits, carry out the commands in first alone
}

// unplaced is the reason why a need can't be met now.
type unplaced struct {
	code    model.Code
	message string
	out     excluded
	unblock string // advice that is more precise than unblockPlacement's; "" if there is none
	preempt string // why preemption doesn't help, for explanations
}

// place meets the needs of all groups. The most important class comes first, so that it finds room. Within a class,
// empty slots come first, then instances that must move, then old versions. If there is no room, less important
// instances may be preempted.
func (p *pass) place() {
	var needs []*need
	for _, g := range p.groups {
		needs = append(needs, p.needs(g)...)
	}
	slices.SortStableFunc(needs, func(a, b *need) int {
		return cmp.Or(cmp.Compare(a.group.class, b.group.class), cmp.Compare(a.urgency, b.urgency))
	})
	for _, n := range needs {
		p.placeAll(n)
	}
	p.noteWaiting()
}

// placeAll places a need's slot and the following slots, or only reserves their room if n.look is set. If the instance
// of one slot fits nowhere, those of the later slots don't either, because no room is freed in between.
func (p *pass) placeAll(n *need) {
	fulfil := p.placeNeed
	if n.look {
		fulfil = func(n *need) *unplaced { _, why := p.peek(n); return why }
	}
	if n.homes != nil {
		p.placeHomes(n, fulfil)
		return
	}
	for ; n.more >= 0; n.slot, n.more = n.slot+1, n.more-1 {
		if why := p.preempt(n, fulfil(n)); why != nil {
			p.unplaced(n, why)
			return
		}
	}
}

// unplaced records why a need can't be met. It records the reason for the instance that should be replaced, or as a
// refusal if the slots are empty.
func (p *pass) unplaced(n *need, why *unplaced) {
	if _, waits := p.state().PullOf(n.group.id, n.slot); waits && why.code == model.CodeImagePulling {
		return // waitForPull has recorded what the slot waits for
	}
	if p.givesUpSurge(n, why) {
		return
	}
	p.reasons.noRooms(n, why)
	switch {
	case n.replaces != nil && n.group.spec.Replicated():
		p.unbuilt(n.replaces, why)
		return
	case n.replaces != nil:
		p.block(n.replaces, model.Unschedulable(why.code), "its replacement fits nowhere: "+why.message, why.wayOut())
		return
	}
	subject := fmt.Sprintf("%s/%d", n.group.subject(), n.slot)
	if n.more > 0 {
		subject += fmt.Sprintf("-%d", n.slot+n.more)
	}
	p.plan.refuse(subject, model.Refuse(why.code, "%s", why.message))
}

// placeNeed places one instance, or returns why it can't. If the draft refuses a node, placeNeed tries the next best
// node.
func (p *pass) placeNeed(n *need) *unplaced {
	f := p.fieldOf(n.group, n.version)
	if f == nil {
		return &unplaced{code: model.CodeNotFound, message: fmt.Sprintf("version %d of %s is gone", n.version, n.group.id)}
	}
	if why := p.unsettled(n, f); why != nil {
		return why
	}
	if done, why := p.usePull(n, f); done {
		return why
	}
	if n.home != "" {
		return p.placeAt(n, f)
	}
	var last *model.Error
	v, why := p.choose(n, f, func(v *nodeView) (bool, model.Code) {
		if last = p.pullOrPlace(n, f, v); last == nil {
			return true, ""
		}
		return false, last.Code
	})
	if v == nil && fsm.IsQuota(why.code) {
		why.message = last.Message
		if len(n.first) > 0 && p.plan.try(n.group.subject(), n.first...) == nil {
			return why // the stop of the failed instance makes room in the quota
		}
	}
	if v == nil && n.spare && rank(why.code) < 0 {
		bare := *n
		bare.first, bare.spare = nil, false
		return p.placeNeed(&bare)
	}
	if v == nil && n.regardless && p.plan.try(n.group.subject(), n.first...) == nil {
		n.first = nil
		return why // the room that the stop frees can be used when the stop is confirmed
	}
	if v == nil {
		return why
	}
	f.count(v)
	f.putBack(v)
	return nil
}

// unsettled returns why a need's slot can't be filled after a restore: an instance that the restored state does not
// know may hold the slot. It returns nil if the slot can be filled.
func (p *pass) unsettled(n *need, f *field) *unplaced {
	refusal := p.state().SlotUnsettled(f.spec, n.group.id, n.slot)
	if refusal == nil {
		return nil
	}
	return &unplaced{code: refusal.Code, message: refusal.Message + "; " + refusal.Hint}
}

// peek returns the node that placeNeed would choose, and reserves room on that node until the decision ends. If the
// need has a home node, peek only checks that node and reserves nothing. If n.secure is set, peek claims a node whose
// agent pulls images, and returns why the need must wait until the image is there.
func (p *pass) peek(n *need) (model.NodeID, *unplaced) {
	f := p.fieldOf(n.group, n.version)
	if f == nil {
		return "",
			&unplaced{code: model.CodeNotFound, message: fmt.Sprintf("version %d of %s is gone", n.version, n.group.id)}
	}
	if why := p.unsettled(n, f); why != nil {
		return "", why
	}
	if why := p.quotaAfter(n, f); why != nil {
		return "", why
	}
	if node, why, held := p.heldFor(n); held {
		return node, why
	}
	if n.home != "" {
		why := p.homeProblem(n, f)
		if why == nil && n.secure {
			why = p.securedAt(n, f, p.candidates().view(n.home))
		}
		return n.home, why
	}
	v, why := p.choose(n, f, func(v *nodeView) (bool, model.Code) {
		if !n.secure || !v.node.Pulls(f.spec) {
			return true, ""
		}
		refusal := p.claim(n, f, v, false)
		if refusal != nil {
			return false, refusal.Code
		}
		return true, ""
	})
	if v == nil {
		return "", why
	}
	if node, why, held := p.heldFor(n); held {
		f.count(v)
		f.putBack(v)
		return node, why
	}
	f.reserve(v)
	p.nodes.moved(v)
	f.count(v)
	f.putBack(v)
	p.reasons.targets[slotKey{n.group.id, n.slot}] = v.node.ID
	return v.node.ID, nil
}

// choose calls accept with the field's nodes, the best first, until accept takes one or refuses for a reason that is
// not about nodes. Nodes that only this need can't use are put back into the field. The caller puts back the returned
// node.
func (p *pass) choose(n *need, f *field, accept func(*nodeView) (bool, model.Code)) (*nodeView, *unplaced) {
	var replaced *fsm.Node
	if n.replaces != nil {
		replaced = p.node(n.replaces.Node)
	}
	var back []*nodeView
	defer func() {
		for _, v := range back {
			f.putBack(v)
		}
	}()
	why := excluded(nil)
	for {
		v := f.take()
		if v == nil {
			return nil, p.nowhere(f, why)
		}
		if f.repeats(v.node, replaced) {
			why.add(model.CodeAntiAffinity, 1)
			back = append(back, v)
			continue
		}
		if n.leaves && v.node.ID == n.replaces.Node {
			why.add(model.CodeAntiAffinity, 1)
			back = append(back, v)
			continue
		}
		if code := p.keptApart(n, v.node.ID); code != "" {
			why.add(code, 1)
			back = append(back, v)
			continue
		}
		ok, code := accept(v)
		if ok {
			return v, nil
		}
		if rank(code) < 0 { // the refusal is not about this node, so every other node would be refused too
			back = append(back, v)
			return nil, &unplaced{code: code, message: fmt.Sprintf("%s slot %d: %s", n.group.id, n.slot, code)}
		}
		f.out.add(code, 1)
	}
}

// nowhere returns why no node is possible, and how many nodes each rule excluded.
func (p *pass) nowhere(f *field, also excluded) *unplaced {
	out := slices.Clone(f.unranked())
	for _, x := range slices.Concat(f.out, also) {
		out.add(x.Code, x.Nodes)
	}
	why := &unplaced{code: out.main(), message: p.words(f, out) + p.withoutNetwork(f), out: out}
	if slices.ContainsFunc(out, func(x model.Excluded) bool { return x.Code == model.CodeImagePull }) {
		why.message += ": " + p.registryWords(f)
	}
	switch why.code {
	case model.CodeNoPorts:
		p.explainPorts(f, why)
	case model.CodeConstraint:
		if c := f.spec.Container; c != nil && len(c.Platforms) > 0 {
			why.message += ": its image is for " + strings.Join(c.Platforms, ", ")
		}
		for i, c := range f.spec.Constraints {
			if !slices.Contains(f.meets[i], true) {
				why.message += ": " + p.candidates().unmet(c)
				break
			}
		}
	}
	return why
}

// withoutNetwork returns, as the rest of a sentence, why the first node that was excluded because it can't give a
// container a network can't do so. The reasons of the others are usually the same. It returns "" if there is none.
func (p *pass) withoutNetwork(f *field) string {
	if !f.spec.Bridged() {
		return ""
	}
	for _, v := range p.candidates().views {
		if v.refusal == nil && filterProgram(f, v) == model.CodeNoNetwork {
			return ": " + v.node.Name + ": " + v.node.Self.Runtime.WhyNoBridge()
		}
	}
	return ""
}

// explainPorts adds to why.message on how many nodes another instance of the group has the group's static port. It adds
// nothing if there is no such node. A group with a static port needs a node for each instance.
func (p *pass) explainPorts(f *field, why *unplaced) {
	port, own, others, away := 0, 0, 0, 0
	for _, spec := range f.spec.Ports {
		if spec.Static != 0 {
			port = spec.Static
			break
		}
	}
	if port == 0 {
		return
	}
	for _, v := range f.views {
		owner, taken := p.state().PortOwner(v.node.ID, port)
		inst, known := p.state().Instances.Get(owner)
		switch {
		case v.refusal != nil || v.detour && !f.detours:
			away++
		case taken && known && inst.Group == f.group.id:
			own++
		case taken:
			others++
		}
	}
	if own == 0 {
		return
	}
	why.message += fmt.Sprintf("; on %d of them another instance of %s has port %d", own, f.group.id, port)
	if others > 0 {
		why.message += fmt.Sprintf(", on %d an instance of another group", others)
	}
	why.unblock = "add a node"
	if away > 0 {
		why.unblock = fmt.Sprintf("uncordon or bring back one of the %d nodes that take nothing, or add a node", away)
	}
}

// wayOut returns what would make the placement possible, or "" if nothing is known to help.
func (u *unplaced) wayOut() string {
	if u.unblock != "" {
		return u.unblock
	}
	return unblockPlacement(u.code)
}

// placeAt places a need that has only one possible node: the home of its volume, or the node that an instance of a
// system group is for. It first releases the room that a transfer reserved on that node for the instance.
func (p *pass) placeAt(n *need, f *field) *unplaced {
	p.redeem(n)
	if why := p.homeProblem(n, f); why != nil {
		return why
	}
	if refusal := p.pullOrPlace(n, f, p.candidates().view(n.home)); refusal != nil {
		return &unplaced{code: refusal.Code, message: refusal.Message, out: excluded{{Code: refusal.Code, Nodes: 1}}}
	}
	return nil
}

func (p *pass) homeProblem(n *need, f *field) *unplaced {
	v := p.candidates().view(n.home)
	why := func(code model.Code, format string, args ...any) *unplaced {
		return &unplaced{code: code, message: fmt.Sprintf(format, args...), out: excluded{{Code: code, Nodes: 1}}}
	}
	switch {
	case v == nil:
		return why(model.CodeVolumeNoNode, "its home node %s is gone", n.home)
	case v.node.Health == model.HealthOffline:
		return why(model.CodeVolumeOffline, "its home node %s is offline", v.node.Name)
	case v.refusal != nil && !v.detour:
		return why(model.CodeVolumeNoNode, "its only possible %s", v.refusal.Message)
	}
	switch code := f.exclude(v); code {
	case "":
	case model.CodeImagePull:
		failed, _ := v.node.PullFailed(f.group.id, f.version, f.spec.Container.ImageDigest(), p.in.Now)
		return why(code, "its only possible node %s could not pull its image: %s", v.node.Name, failed.Words)
	default:
		return why(code, "its only possible node %s: %s", v.node.Name, code)
	}
	return nil
}

// tryPlace tries on the draft to place a need on a node, in one group with the commands in n.first. It returns the
// draft's refusal, or nil if the group is planned.
func (p *pass) tryPlace(n *need, f *field, v *nodeView) *model.Error {
	row, _ := p.state().Groups.Get(n.group.id)
	id := fsm.DeriveInstanceID(p.in.State.Moment(), p.in.State.Cluster.History().Lineage(), n.group.id, n.slot, row.Placed)
	ports, ok := f.ports(v, id)
	if !ok {
		return model.Refuse(model.CodeNoPorts, "node %s has no port left in its range", v.node.Name)
	}
	c := &fsm.InstancePlace{ID: id, Group: n.group.id, Slot: n.slot, Version: n.version, Node: v.node.ID,
		Ports: ports, Cause: n.cause}
	if n.replaces != nil {
		c.Replaces = n.replaces.ID
	}
	refusal := p.plan.try(n.group.subject(), append(slices.Clip(n.first), c)...)
	if refusal == nil {
		p.changed(v.node.ID)
	}
	return refusal
}
