package fsm

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/outspan/outspan/model"
)

const (
	keptDrains = 2000 // if there are more drains, the oldest ended one is removed
	maxRoll    = 1000 // nodes of one rolling maintenance; below keptDrains, because all of its drains must be kept

	maxRollExec = 4096 // bytes of the command of a rolling maintenance
)

func (c *DrainStart) apply(s *State) error {
	if old, ok := s.Drains.Get(c.ID); ok {
		if s.sameDrain(c, old) {
			return nil // the answer to a repetition is built from the drain's row
		}
		return model.Refuse(model.CodeConflict, "there is already a drain %s, of other nodes or with other options", c.ID).
			WithHint("choose another id, or look at it: outspan drain status %s", c.ID)
	}
	if refusal := cmp.Or(c.check(), s.checkDowntime(c.Options.AcceptDowntime)); refusal != nil {
		return refusal
	}
	d := &Drain{ID: c.ID, Actor: s.entry.actor, Message: c.Message, Options: c.Options, Index: s.Index, Wall: s.Wall}
	var first *model.Error
	for _, name := range c.Nodes {
		n, refusal := s.drainable(name)
		switch {
		case refusal != nil:
			first = cmp.Or(first, refusal)
			d.Rejected = append(d.Rejected, model.DrainRefusal{Node: name, Code: refusal.Code, Message: refusal.Message})
		case slices.ContainsFunc(d.Nodes, func(p DrainNode) bool { return p.Node == n.ID }):
		default:
			d.Nodes = append(d.Nodes, DrainNode{Node: n.ID, Phase: model.PhaseDraining, BootID: n.Agent.BootID})
		}
	}
	if len(d.Nodes) == 0 {
		return first
	}
	turns := len(d.Nodes)
	if c.Options.MaxParallelNodes > 0 {
		turns = min(turns, c.Options.MaxParallelNodes)
	}
	for i := range d.Nodes {
		if i < turns {
			s.takeTurn(&d.Nodes[i], d.Options.Deadline)
		}
		s.cordonForDrain(d.Nodes[i].Node, d.ID)
	}
	s.putDrain(d)
	s.touch("drains", Topic("drain/"+d.ID))
	s.emit(Event{Type: model.EventDrainStarted, Subject: "drain/" + string(d.ID), After: string(model.PhaseDraining),
		Data: map[string]string{"nodes": joinNodes(d.Nodes), "message": c.Message}})
	s.forgetDrains()
	return nil
}

// check refuses a command that is invalid in any state.
func (c *DrainStart) check() *model.Error {
	switch r := c.Options.Roll; {
	case !model.ValidName(string(c.ID)):
		return model.Refuse(model.CodeInvalid, "%q is no drain id: use 1 to 63 letters, digits, '-', '_' or '.'", c.ID)
	case len(c.Nodes) > maxDrainNodes:
		return model.Refuse(model.CodeInvalid, "a drain has at most %d nodes, these are %d", maxDrainNodes, len(c.Nodes)).
			WithHint("drain them in several parts")
	case len(c.Nodes) == 0 || c.Options.Deadline <= 0 || c.Options.MaxParallelNodes < 0:
		return model.Refuse(model.CodeInvalid,
			"a drain needs at least one node, a deadline above 0s or none, and max-parallel-nodes of 0 or more")
	case r != nil && (!model.ValidName(r.ID) || len(r.Nodes) == 0 || len(r.Nodes) > maxRoll || r.Parallel < 0 ||
		len(r.Exec) > maxRollExec):
		return model.Refuse(model.CodeInvalid,
			"a roll needs an id of 1 to 63 letters, digits, '-', '_' or '.', 1 to %d nodes, and a command of at most %d bytes",
			maxRoll, maxRollExec).
			WithHint("roll more nodes in several parts")
	}
	return nil
}

// sameDrain reports whether a command asks for the nodes and options that an existing drain was started with.
func (s *State) sameDrain(c *DrainStart, old *Drain) bool {
	asked := map[string]bool{}
	for _, name := range c.Nodes {
		n, refusal := s.Finder(nil).NamedNode(name)
		switch {
		case refusal == nil && slices.ContainsFunc(old.Nodes, func(p DrainNode) bool { return p.Node == n.ID }):
			asked[string(n.ID)] = true
		case slices.ContainsFunc(old.Rejected, func(r model.DrainRefusal) bool { return r.Node == name }):
			asked[name] = true
		default:
			return false
		}
	}
	return len(asked) == len(old.Nodes)+len(old.Rejected) && sameEncoding(c.Options, old.Options)
}

// drainable returns the named node if a drain can start on it; the node may be offline. Codes: not_found, disabled,
// already_draining.
func (s *State) drainable(name string) (*Node, *model.Error) {
	n, refusal := s.Finder(nil).NamedNode(name)
	if refusal != nil {
		return nil, refusal
	}
	if n.Intent == model.IntentDisabled {
		return nil, model.Refuse(model.CodeDisabled, "node %s is disabled", n.Name).
			WithHint("enable it first: outspan node enable %s", n.Name)
	}
	if d, ok := s.RunningDrain(n); ok {
		return nil, model.Refuse(model.CodeAlreadyDraining, "node %s is already in drain %s", n.Name, d.ID).
			WithHint("follow it with: outspan drain watch %s; cancel it with: outspan drain cancel %s", d.ID, d.ID)
	}
	return n, nil
}

// RunningDrain returns the drain in which the node's part has not ended, or false if there is none.
func (s *fleet) RunningDrain(n *Node) (*Drain, bool) {
	d, ok := s.Drains.Get(n.Drain)
	if !ok || n.Intent != model.IntentDraining {
		return nil, false
	}
	part, ok := d.Node(n.ID)
	return d, ok && part.Phase == model.PhaseDraining
}

func (s *State) takeTurn(p *DrainNode, deadline model.Duration) {
	p.Turn, p.Started, p.StartedWall = true, s.Now, s.Wall
	p.Deadline = s.Now.Add(deadline)
	if p.Deadline != model.Never {
		p.DeadlineWall = s.Wall + int64(deadline)
	}
}

// cordonForDrain makes a node draining and stops its pending instances. Until the node's turn begins, it may still get
// the instances that State.Takes allows.
func (s *State) cordonForDrain(id model.NodeID, drain model.DrainID) {
	n, _ := s.Nodes.Get(id)
	next := *n
	if n.Intent != model.IntentDraining { // a node that an ended drain left draining keeps its acknowledgements
		next.Acked = nil
	}
	next.Intent, next.Drain = model.IntentDraining, drain
	s.setNode(n, next)
	s.stopPending(id, drain)
}

func (s *State) stopPending(id model.NodeID, drain model.DrainID) {
	var pending []*Instance
	for inst := range s.InstancesOn(id) {
		if inst.Desired == model.DesiredRunning && inst.Status.Observed == model.ObservedPending {
			pending = append(pending, inst)
		}
	}
	for _, inst := range pending {
		s.setDesired(inst, model.DesiredStopped, model.CauseNodeDraining, string(drain))
		if inst.WaitsForRoom() {
			s.maybePurge(inst.Group)
		}
	}
}

func joinNodes(parts []DrainNode) string {
	text := ""
	for i, p := range parts {
		if i > 0 {
			text += " "
		}
		text += string(p.Node)
	}
	return text
}

// editDrain edits one node's part of a drain. If all parts have ended, it sets EndedIndex.
func (s *State) editDrain(d *Drain, node model.NodeID, edit func(*DrainNode)) {
	next := *d
	next.Nodes = slices.Clone(d.Nodes)
	for i := range next.Nodes {
		if next.Nodes[i].Node == node {
			edit(&next.Nodes[i])
		}
	}
	if next.Phase() != model.PhaseDraining && next.EndedIndex == 0 {
		next.EndedIndex = s.Index
	}
	s.putDrain(&next)
	s.touch("drains", Topic("drain/"+d.ID), Topic("node/"+node))
}

// countMoved counts an instance that a drain begins to stop. A part that has ended keeps its counts, because they were
// reported already.
func (s *State) countMoved(id model.DrainID, inst *Instance) {
	_, replaced := s.Successor(inst)
	s.editRunning(id, inst.Node, func(p *DrainNode) {
		p.Moved++
		p.Unreplaced += count(!replaced)
	})
}

// countReplaced records that a slot has got a replacement. It finds the last instance of the slot that a drain stopped
// without a replacement, and lowers Unreplaced in that drain, if the drain counts the instance and still runs.
func (s *State) countReplaced(group model.GroupID, slot int) {
	var last *Instance
	for inst := range s.InstancesInSlot(group, slot) {
		if inst.Marks.StopCause == model.CauseNodeDraining && inst.Links.ReplacedBy == "" &&
			(last == nil || inst.Marks.StopBegan > last.Marks.StopBegan) {
			last = inst
		}
	}
	if last == nil {
		return
	}
	d, ok := s.Drains.Get(model.DrainID(orderedBy(last.Marks.StopReason)))
	if !ok {
		return
	}
	if counted, _ := d.Counts(s, last); counted {
		s.editRunning(d.ID, last.Node, func(p *DrainNode) { p.Unreplaced = max(p.Unreplaced-1, 0) })
	}
}

// editRunning edits a node's part of a drain, unless the part has ended.
func (s *State) editRunning(id model.DrainID, node model.NodeID, edit func(*DrainNode)) {
	d, ok := s.Drains.Get(id)
	if !ok {
		return
	}
	if part, ok := d.Node(node); !ok || part.Phase != model.PhaseDraining {
		return
	}
	s.editDrain(d, node, edit)
}

// findPart returns a drain and the part of one node, if this part has not ended. Codes: not_found, conflict (the part
// has ended).
func (s *State) findPart(id model.DrainID, node model.NodeID) (*Drain, DrainNode, *model.Error) {
	d, ok := s.Drains.Get(id)
	if !ok {
		return nil, DrainNode{}, model.Refuse(model.CodeNotFound, "there is no drain %s", id)
	}
	p, ok := d.Node(node)
	if !ok {
		return nil, p, model.Refuse(model.CodeNotFound, "node %s is not in drain %s", node, id)
	}
	if p.Phase != model.PhaseDraining {
		return nil, p, model.Refuse(model.CodeConflict, "node %s of drain %s is already %s", node, id, p.Phase)
	}
	return d, p, nil
}

func (c *DrainTurn) apply(s *State) error {
	d, p, refusal := s.findPart(c.ID, c.Node)
	if refusal != nil {
		return refusal
	}
	if p.Turn {
		return nil
	}
	running := 0
	for _, other := range d.Nodes {
		running += count(other.Turn && other.Phase == model.PhaseDraining)
	}
	if limit := d.Options.MaxParallelNodes; limit > 0 && running >= limit {
		return model.Refuse(model.CodeConflict, "drain %s already works on %d nodes", d.ID, running)
	}
	s.editDrain(d, c.Node, func(p *DrainNode) { s.takeTurn(p, d.Options.Deadline) })
	s.stopPending(c.Node, d.ID)
	return nil
}

func (c *DrainEnd) apply(s *State) error {
	d, p, refusal := s.findPart(c.ID, c.Node)
	if refusal != nil {
		return refusal
	}
	n, ok := s.Nodes.Get(c.Node)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no node %s", c.Node)
	}
	switch c.Phase {
	case model.PhaseDrained:
		if b := s.DrainLeft(d, n); b != nil {
			return model.Refuse(model.CodeConflict, "node %s is not drained: %s", n.Name, b.Message)
		}
		if d.Options.Force {
			s.endBackups(n.ID)
		}
	case model.PhaseFailed:
		if c.LastError == "" || !p.Turn || s.Now < p.Deadline {
			return model.Refuse(model.CodeConflict, "a node of a drain fails at its deadline, with the blockers as last error")
		}
	default:
		return model.Refuse(model.CodeInvalid, "a drain does not end as %q", c.Phase)
	}
	s.endDrainOf(n, c.Phase, c.LastError)
	return nil
}

// DrainLeft returns nil if the node is drained (P11), or the first reason why it is not. Some instances may stay on a
// drained node that is not offline: acknowledged ones that can't be moved and, with the option IgnoreSystem, those of
// system groups.
func (s *State) DrainLeft(d *Drain, n *Node) *model.Error {
	if s.Unconfirmed {
		return model.Refuse(model.CodeRestoreUnconfirmed, "a restore is not confirmed: drains wait").
			WithHint("look at what confirming would stop: outspan settings resume restore --dry-run; then: outspan " +
				"settings resume restore")
	}
	if n.Health == model.HealthOffline && n.Restore.pending() {
		return s.mayStillRun(n)
	}
	if len(n.Restore.Unknown) > 0 {
		return s.unknownLeft(n)
	}
	if n.Restore.InventoryOwed {
		return model.Refuse(model.CodeInventoryMissing, "the agent of node %s has not told since the restore what runs there",
			n.Name).WithHint("start its agent")
	}
	for inst := range s.InstancesOn(n.ID) {
		switch {
		case !inst.holdsClaims():
		case n.Health == model.HealthOffline:
			return model.Refuse(model.CodeNodeOffline, "node %s is offline: instance %s is not known to have stopped",
				n.Name, inst.ID).
				WithHint("bring the machine back, or if it is gone: outspan node confirm-dead %s", n.Name)
		case inst.Desired != model.DesiredRunning:
			return model.Refuse(model.CodeStopping, "instance %s is stopping", inst.ID)
		case d.Options.IgnoreSystem && s.isSystem(inst):
		case s.leaving(inst):
			return model.Refuse(model.CodeReplacementPending, "instance %s moves with its volumes", inst.ID)
		case slices.Contains(n.Acked, inst.ID) && s.Movable(inst) != nil:
		case s.Movable(inst) != nil:
			return s.Movable(inst)
		default:
			return model.Refuse(model.CodeReplacementPending, "instance %s still runs", inst.ID)
		}
	}
	if n.Health != model.HealthOffline { // copies on an offline node can't be used, so they are not protected
		for m := range s.MembersOn(n.ID) {
			if refusal := s.MemberBlocks(m, s.PolicyFor(d)); refusal != nil {
				return refusal
			}
		}
	}
	return s.volumesAtWork(d, n)
}

// endDrainOf ends the node's part of its running drain, or does nothing if no drain runs there. It also withdraws the
// drain's eviction requests for instances whose stop has not begun.
func (s *State) endDrainOf(n *Node, phase model.DrainPhase, why string) {
	d, ok := s.RunningDrain(n)
	if !ok {
		return
	}
	s.editDrain(d, n.ID, func(p *DrainNode) {
		if phase != model.PhaseCanceled {
			p.Acked = s.Acknowledged(n)
		}
		p.Phase, p.LastError, p.EndedWall = phase, model.ClipText(why, lastErrorRoom(len(d.Nodes))), s.Wall
	})
	s.emit(Event{Type: model.EventDrainPhase, Subject: "drain/" + string(d.ID), Before: string(model.PhaseDraining),
		After: string(phase), Data: map[string]string{"node": string(n.ID), "reason": why}})
	var marked []*Instance
	for inst := range s.InstancesOn(n.ID) {
		if inst.Desired == model.DesiredRunning && inst.Eviction.Requested && inst.Eviction.By == string(d.ID) {
			marked = append(marked, inst)
		}
	}
	reason := "EvictionCanceled"
	if phase == model.PhaseFailed {
		reason = "EvictionFailed"
	}
	for _, inst := range marked {
		s.flip(inst, Eviction{}, reason)
	}
}

func (c *DrainPause) apply(s *State) error {
	d, ok := s.Drains.Get(c.ID)
	switch {
	case !ok:
		return model.Refuse(model.CodeNotFound, "there is no drain %s", c.ID)
	case d.Phase() != model.PhaseDraining:
		return model.Refuse(model.CodeConflict, "drain %s is already %s", c.ID, d.Phase())
	case d.Paused == c.Paused:
		return nil
	}
	next := *d
	next.Paused = c.Paused
	s.putDrain(&next)
	s.touch("drains", Topic("drain/"+d.ID))
	s.emit(Event{Type: model.EventDrainPhase, Subject: "drain/" + string(d.ID), Before: string(model.PhaseDraining),
		After: string(model.PhaseDraining), Data: map[string]string{"paused": fmt.Sprint(c.Paused)}})
	return nil
}

func (c *DrainCancel) apply(s *State) error {
	d, ok := s.Drains.Get(c.ID)
	switch {
	case !ok:
		return model.Refuse(model.CodeNotFound, "there is no drain %s", c.ID)
	case d.Phase() != model.PhaseDraining:
		return model.Refuse(model.CodeConflict, "drain %s is already %s", c.ID, d.Phase())
	}
	for _, part := range d.Nodes {
		n, ok := s.Nodes.Get(part.Node)
		if !ok || part.Phase != model.PhaseDraining {
			continue
		}
		s.endDrainOf(n, model.PhaseCanceled, "canceled by "+string(s.entry.actor))
		if c.Uncordon {
			current, _ := s.Nodes.Get(n.ID)
			next := *current
			next.Intent, next.Acked = model.IntentActive, nil
			s.setNode(current, next)
		}
	}
	return nil
}
