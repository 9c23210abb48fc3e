package reconcile

import (
	"fmt"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

const (
	pullStalled      = 30 * model.Minute // a pull without progress for this long has failed
	pullPause        = 30 * model.Second // after a failed pull, before the image is pulled on the node again
	longestPullPause = 5 * model.Minute  // the pause is doubled up to this
	pullPauseKept    = model.Hour        // an image that did not fail for this long after its pause begins anew
	imageThere       = full / 2          // points for a node that has the image: half of what an empty node gets
	stalledWords     = "the pull made no progress for "
)

// reviewPulls ends the claims whose slot needs no instance there any more, whose node takes none, or whose pull failed.
func (p *pass) reviewPulls() {
	for _, c := range p.allPulls() {
		drop := &fsm.ImageDrop{Group: c.Group, Slot: c.Slot}
		if p.pullWanted(c) {
			if drop.Failed = p.pullFailure(c); drop.Failed == "" {
				continue
			}
			n := p.node(c.Node)
			image, _ := n.Image(c.Digest())
			drop.Pause = pauseAfter(n, c.Digest(), p.in.Now)
			drop.Missing = image.State == model.ImageFailed && image.Missing
		}
		_ = p.tryPull(c.Group, c.Node, drop) // never refused: the claim is there
	}
}

// allPulls returns the claims, because commands change the table.
func (p *pass) allPulls() []*fsm.Pull {
	if p.state().Pulls.Len() == 0 {
		return nil
	}
	var all []*fsm.Pull
	for _, c := range p.state().Pulls.All() {
		all = append(all, c)
	}
	return all
}

// tryPull tries commands about claims to a node. It returns the draft's refusal.
func (p *pass) tryPull(group model.GroupID, node model.NodeID, commands ...fsm.Command) *model.Error {
	refusal := p.plan.try("group/"+string(group), commands...)
	if refusal == nil && p.nodes != nil { // otherwise the table of nodes will be made from the new rows
		p.changed(node)
	}
	return refusal
}

// dropPull gives up a claim.
func (p *pass) dropPull(c *fsm.Pull) {
	_ = p.tryPull(c.Group, c.Node, &fsm.ImageDrop{Group: c.Group, Slot: c.Slot}) // never refused: the claim is there
}

// pullWanted reports whether a claim still has its cause: its slot needs an instance of its version, and its node takes
// it.
func (p *pass) pullWanted(c *fsm.Pull) bool {
	i := slices.IndexFunc(p.groups, func(g *groupView) bool { return g.id == c.Group })
	node := p.node(c.Node)
	if i < 0 || node == nil {
		return false
	}
	g := p.groups[i]
	spec, ok := p.state().Spec(c.Group, c.Version)
	if !ok || !node.Pulls(spec) || p.state().TakesProgram(node, spec) != nil || g.row.Count == 0 {
		return false
	}
	slot := g.slot(c.Slot)
	switch holder := slot.holder; {
	case holder == nil:
		return (g.system() || c.Slot < g.row.Count) && c.Version == p.version(g, slot.last) && !g.runsOn(c.Node)
	case slot.dropped, slot.successor != nil && p.leaveReasonOf(g, slot.successor) == leaveNone:
		return false
	default:
		w := p.leaveReasonOf(g, holder)
		if w == leaveRolled {
			return c.Version == g.row.Version
		}
		return w != leaveNone && w != leaveMoved && c.Version == p.version(g, holder)
	}
}

// runsOn reports whether a system group has an instance on the node already. It returns false for any other group.
func (g *groupView) runsOn(node model.NodeID) bool {
	return g.system() && slices.ContainsFunc(g.slots(), func(v *slotView) bool {
		return v.holder != nil && v.holder.Node == node
	})
}

// pullFailure returns why a pull has failed, in the registry's words, or "" if it has not.
func (p *pass) pullFailure(c *fsm.Pull) string {
	image, _ := p.node(c.Node).Image(c.Digest())
	switch {
	case image.State == model.ImagePresent:
		return ""
	case image.State == model.ImageFailed && image.Words == "":
		return "the agent says nothing more"
	case image.State == model.ImageFailed:
		return image.Words
	case image.State == model.ImageQueued: // behind others, whose pulls end
		return ""
	case !p.reached(max(c.Since, image.Moved).Add(pullStalled)):
		return ""
	}
	return stalledWords + pullStalled.String()
}

// pauseAfter returns how long nothing that needs an image is placed on a node after its pull has failed there.
func pauseAfter(n *fsm.Node, digest string, now model.Time) model.Duration {
	before, ok := n.FailedPull(digest)
	if !ok || now >= before.Until.Add(pullPauseKept) {
		return pullPause
	}
	return min(2*before.Pause, longestPullPause)
}

// usePull meets a need from its slot's claim: it places the instance if the image is there, and otherwise records that
// the slot waits. It returns false if the slot has no claim, or if the claim is of no use now.
func (p *pass) usePull(n *need, f *field) (done bool, why *unplaced) {
	c, ok := p.state().PullOf(n.group.id, n.slot)
	switch {
	case !ok:
		return false, nil
	case c.Version != n.version || n.home != "" && n.home != c.Node:
		p.dropPull(c)
		return false, nil
	case !p.state().Pulled(c):
		p.waitForPull(n, c)
		return true, nil
	}
	refusal := p.tryPlace(n, f, p.candidates().view(c.Node))
	switch {
	case refusal == nil:
		return true, nil
	case rank(refusal.Code) < 0: // no other node would do
		if n.replaces == nil && fsm.IsQuota(refusal.Code) && len(n.group.slot(n.slot).leaving) == 0 {
			p.dropPull(c) // what the quota does not allow keeps no room from others
		}
		return true, &unplaced{code: refusal.Code, message: refusal.Message}
	}
	if !c.Bare() { // a claim without room stays, because room may be made by preemption
		p.dropPull(c)
	}
	return false, nil
}

// pullOrPlace places a need on a node, or claims the node if it lacks the image. It returns the draft's refusal.
func (p *pass) pullOrPlace(n *need, f *field, v *nodeView) *model.Error {
	if v.node.LacksImage(f.spec) {
		return p.claim(n, f, v, false)
	}
	return p.tryPlace(n, f, v)
}

// claim claims a node for a need and orders the image there, if the class's quota has room for the instance. A bare
// claim keeps no room.
func (p *pass) claim(n *need, f *field, v *nodeView, bare bool) *model.Error {
	job, _ := n.group.id.Split()
	if refusal := p.state().CheckQuota(job, f.claim, n.replaces); refusal != nil {
		return refusal
	}
	c := &fsm.ImageWant{Group: n.group.id, Slot: n.slot, Version: n.version, Node: v.node.ID, Cause: n.cause, Bare: bare}
	if n.secure && n.replaces != nil && n.replaces.Node == v.node.ID {
		c.After = n.replaces.ID
	}
	group := []fsm.Command{c}
	if old, ok := p.state().PullOf(c.Group, c.Slot); ok { // a claim without room gives way to one with room
		group = []fsm.Command{&fsm.ImageDrop{Group: old.Group, Slot: old.Slot}, c}
	}
	if refusal := p.tryPull(c.Group, v.node.ID, group...); refusal != nil {
		return refusal
	}
	if row, ok := p.state().PullOf(c.Group, c.Slot); ok && !p.state().Pulled(row) {
		p.waitForPull(n, row)
	}
	return nil
}

// waitForPull records that a slot's next instance waits for its image.
func (p *pass) waitForPull(n *need, c *fsm.Pull) {
	why := p.pulling(c)
	p.reasons.slots[slotKey{c.Group, c.Slot}] = why
	p.reasons.targets[slotKey{c.Group, c.Slot}] = c.Node
	if n.replaces != nil {
		p.wait(n.replaces, why.code, "its replacement waits: "+why.message, "")
	}
}

// pulling returns what a claim waits for.
func (p *pass) pulling(c *fsm.Pull) *unplaced {
	text := fmt.Sprintf("node %s pulls the image %s", p.nodeName(c.Node), c.Name())
	switch image, _ := p.node(c.Node).Image(c.Digest()); {
	case image.State == model.ImageQueued:
		text += ", once others are pulled"
	case image.Total > 0:
		text += fmt.Sprintf(" (%s of %s)", model.SizeText(image.Bytes), model.SizeText(image.Total))
	}
	return &unplaced{code: model.CodeImagePulling, message: text}
}

// secured returns nil if the instance that the need replaces may stop now: its replacement has room, and its image is
// on the node where it will run. Otherwise it claims the room, and returns why the stop must wait.
func (p *pass) secured(n *need) *unplaced {
	n.secure = true
	_, why := p.peek(n)
	return why
}

// heldFor returns the node that a need's slot has claimed, for peek. It returns false if the slot has no claim. If
// n.secure is set, a claim without room is none.
func (p *pass) heldFor(n *need) (model.NodeID, *unplaced, bool) {
	c, ok := p.state().PullOf(n.group.id, n.slot)
	if !ok || c.Version != n.version || n.secure && c.Bare() {
		return "", nil, false
	}
	if n.secure && !p.state().Pulled(c) {
		p.waitForPull(n, c)
		return "", p.pulling(c), true
	}
	return c.Node, nil, true
}

// securedAt claims a node for a need whose present instance stops first. It returns nil if the image is there.
func (p *pass) securedAt(n *need, f *field, v *nodeView) *unplaced {
	if !v.node.Pulls(f.spec) {
		return nil
	}
	if _, why, held := p.heldFor(n); held {
		return why
	}
	if refusal := p.claim(n, f, v, false); refusal != nil {
		return &unplaced{code: refusal.Code, message: refusal.Message, out: excluded{{Code: refusal.Code, Nodes: 1}}}
	}
	_, why, _ := p.heldFor(n)
	return why
}

// filterImage excludes a node that could not pull the image of the group's version a short time ago.
func filterImage(f *field, v *nodeView) model.Code {
	if f.spec.Container == nil || !v.avoided {
		return ""
	}
	failed, away := v.node.PullFailed(f.group.id, f.version, f.spec.Container.ImageDigest(), f.pass.in.Now)
	if away {
		f.pass.plan.wakeAt(failed.Until)
		return model.CodeImagePull
	}
	return ""
}

// registryWords returns what the registry said to the first node that could not pull the image of a field's version.
func (p *pass) registryWords(f *field) string {
	for _, v := range f.views {
		if failed, away := v.node.PullFailed(f.group.id, f.version, f.spec.Container.ImageDigest(), p.in.Now); away {
			return failed.Words
		}
	}
	return ""
}

// pullWaits returns what a group's rollout waits for if an image of its version is being pulled, or can be pulled
// nowhere; nil otherwise. Neither is the version's fault.
func (p *pass) pullWaits(g *groupView) *model.Error {
	for c := range p.state().PullsOf(g.id) {
		if c.Version == g.row.Version && !p.state().Pulled(c) {
			why := p.pulling(c)
			return model.Refuse(why.code, "%s slot %d: %s", g.id, c.Slot, why.message)
		}
	}
	if g.spec.Container == nil || !p.reasons.lacksRoom(g.id) {
		return nil
	}
	for n := range g.row.Count {
		if why := p.reasons.slot(slotKey{g.id, n}); why != nil && why.code == model.CodeImagePull {
			return model.Refuse(why.code, "%s slot %d: %s", g.id, n, why.message)
		}
	}
	return nil
}

// pullText says in words which image a node must pull before the group's next instance starts there, and how large it
// is, if a node that has it reported that. It returns "" if the node has the image or pulls when it starts instances.
func pullText(s *fsm.State, group model.GroupID, target model.NodeID) string {
	n, ok := s.Nodes.Get(target)
	row, known := s.Groups.Get(group)
	if !ok || !known {
		return ""
	}
	spec, known := s.Spec(group, row.Version)
	if !known || !n.LacksImage(spec) {
		return ""
	}
	text := fmt.Sprintf("node %s must pull the image %s first", n.Name, spec.Container.ImageName())
	size := int64(0)
	for _, other := range s.Nodes.All() {
		image, _ := other.Image(spec.Container.ImageDigest())
		size = max(size, image.Total)
	}
	if size > 0 {
		here, _ := n.Image(spec.Container.ImageDigest())
		text += " (" + model.SizeText(max(size-here.Bytes, 0)) + ")"
	}
	return text
}
