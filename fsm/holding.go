package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

// NodeRestore is what a restore left open on a node.
type NodeRestore struct {
	Owes    bool            `cbor:"1,keyasint,omitempty"` // its agent has not sent its inventory since the last restore
	Raised  bool            `cbor:"2,keyasint,omitempty"` // its agent has raised the incarnation since the last restore
	Unknown []model.Holding `cbor:"3,keyasint,omitempty"` // instances here that have no row, in order of id
	// its agent registered with word of an older incarnation only, and has not sent its inventory since
	Behind bool   `cbor:"4,keyasint,omitempty"`
	Told   uint64 `cbor:"5,keyasint,omitempty"` // State.Restored when its agent last sent a whole inventory
}

func equalHoldings(h model.Holding, o model.Holding) bool {
	return h.ID == o.ID && h.Group == o.Group && h.Slot == o.Slot && h.Ends == o.Ends && h.Late == o.Late &&
		h.Spec == o.Spec && h.RestartSeq == o.RestartSeq &&
		slices.Equal(h.Ports, o.Ports) && slices.Equal(h.Copies, o.Copies)
}

// maxHoldings bounds the unknown instances of a node.
const maxHoldings = 1024

// maxHoldingName bounds the texts of a holding: "job/group" has at most 127 bytes.
const maxHoldingName = 128

// maxHoldingParts bounds the ports and volumes of a holding.
const maxHoldingParts = 64

// Ends reports whether an instance that the node's agent has and the state does not is to stop: a person has decided
// so; or the agent has followed this state, so no restore lost the instance's row, the state has removed it.
func (r *NodeRestore) Ends(id model.InstanceID) bool {
	if i := slices.IndexFunc(r.Unknown, func(h model.Holding) bool { return h.ID == id }); i >= 0 {
		return r.Unknown[i].Ends
	}
	return !r.Owes && !r.Behind
}

// unheard reports whether the node is online by what a restored state says, and its agent has not told since what runs
// there.
func (n *Node) unheard() bool { return n != nil && n.Restore.Owes && n.Health != model.HealthOffline }

// late tells Holding.Late of an instance that its agent tells of now. One without a group is any that the agent ran
// before a restore: an agent that was not known at the restore has none.
func (n *Node) late(s *State, h model.Holding) bool {
	if i := slices.IndexFunc(n.Restore.Unknown, func(o model.Holding) bool { return o.ID == h.ID }); i >= 0 {
		return n.Restore.Unknown[i].Late
	}
	restored := s.Unconfirmed || s.Confirmed > 0
	return !n.Restore.Owes && !(n.Restore.Behind && restored && h.Group != "")
}

// pending reports whether a restore left something open on the node.
func (r *NodeRestore) pending() bool { return r.Owes || len(r.Unknown) > 0 }

// holdsSlot reports whether instances hold their slot although a restored state does not know them: only one may fill
// it, it is never filled again, or they hold data.
func holdsSlot(g *model.GroupSpec) bool {
	return g.OneHolder() || len(g.Volumes) > 0 || g.Replacement.Mode == model.ModeNever
}

// SlotUnsettled returns nil if nothing that a restore has lost can hold a slot, or why that can't be told. Until then
// the slot gets no instance, and what it has is not started. Codes: restore_unconfirmed, slot_taken, inventory_missing.
func (s *State) SlotUnsettled(spec *model.GroupSpec, group model.GroupID, slot int) *model.Error {
	if !holdsSlot(spec) {
		return nil
	}
	if s.Unconfirmed {
		return model.Refuse(model.CodeRestoreUnconfirmed, "slot %d of %s may be filled already: a restore is not confirmed",
			slot, group).
			WithHint("look at what confirming would stop: outspan settings resume restore --dry-run; then: outspan " +
				"settings resume restore")
	}
	silent, holder := s.owing(), (*model.Error)(nil)
	for id := range s.restoring.All() {
		n, _ := s.Nodes.Get(id)
		if h, ok := s.blocker(n, group, slot, ""); ok {
			holder = slotTaken(n, h, group, slot)
			break
		}
	}
	switch {
	case silent == nil && holder == nil:
		return nil
	case silent == nil:
		return holder
	case holder != nil: // it is taken over once it is known to be the only one
		holder.Message += fmt.Sprintf(
			"; it waits for the agent of node %s, which has not told since the restore what runs there", silent.Name)
		return holder.WithHint(owingHint, silent.Name)
	}
	return model.Refuse(model.CodeInventoryMissing,
		"slot %d of %s may be filled already: the agent of node %s has not told since the restore what runs there",
		slot, group, silent.Name).
		WithHint(owingHint, silent.Name)
}

// blocker returns an instance on a node that the state does not know and that may be in a slot; not the one with the id
// but. What an agent says of another's slot counts while a restore is open on its node, for then the state can't know
// better. Later it counts only for a group that has or had an instance or data on the node: an agent alone can't block
// the slots of the cluster.
func (s *State) blocker(n *Node, group model.GroupID, slot int, but model.InstanceID) (model.Holding, bool) {
	late := -1
	for i, h := range n.Restore.Unknown {
		switch {
		case h.ID == but, h.Group != "" && (h.Group != group || h.Slot != slot):
		case !h.Late:
			return h, true
		case late < 0:
			late = i
		}
	}
	if late < 0 || !s.wasOn(n.ID, group) {
		return model.Holding{}, false
	}
	return n.Restore.Unknown[late], true
}

// mayBlock reports whether what is open on a node after a restore, or what it has that the state doesn't know, may be
// in a slot of a group.
func (s *State) mayBlock(n *Node, group model.GroupID) bool {
	late := false
	for _, h := range n.Restore.Unknown {
		if h.Group == group || h.Group == "" {
			if !h.Late {
				return true
			}
			late = true
		}
	}
	return n.Restore.Owes || late && s.wasOn(n.ID, group)
}

// wasOn reports whether the state has a row of an instance or a volume of a group on a node.
func (s *State) wasOn(node model.NodeID, group model.GroupID) bool {
	for inst := range s.InstancesOn(node) {
		if inst.Group == group {
			return true
		}
	}
	for id, v := range s.Volumes.From(model.VolumeID(group + "/")) {
		if !strings.HasPrefix(string(id), string(group)+"/") {
			break
		}
		if v.Home == node {
			return true
		}
	}
	return false
}

func slotTaken(n *Node, h model.Holding, group model.GroupID, slot int) *model.Error {
	state := "restored state"
	if h.Late {
		state = "state"
	}
	taken := model.Refuse(model.CodeSlotTaken,
		"slot %d of %s is held by instance %s on node %s, which the %s does not know", slot, group, h.ID, n.Name, state)
	if h.Ends {
		return taken.WithHint("it is being stopped; if its agent never says that it has stopped, switch that machine off, "+
			"and once it is offline: "+
			"outspan node confirm-dead %s --force", n.Name)
	}
	return taken.WithHint("to stop it, so that the slot is filled anew: outspan instance stop %s", h.ID)
}

const owingHint = "start its agent; or if the machine is off, once it is offline: outspan node confirm-dead %s --force"

// owing is the first node whose agent has not told since the last restore what runs there; nil if all have.
func (s *fleet) owing() *Node {
	for id := range s.restoring.All() {
		if n, _ := s.Nodes.Get(id); n.Restore.Owes {
			return n
		}
	}
	return nil
}

// unknownLeft says what becomes of the instances on a node that a restore has lost from the state.
func (s *State) unknownLeft(n *Node) *model.Error {
	list := n.Restore.Unknown
	i := max(slices.IndexFunc(list, s.Keeps), 0)
	refusal := model.Refuse(model.CodeUnknownInstance,
		"the restored state does not know %d of the instances that run here, such as %s", len(list), list[i].ID)
	switch silent := s.owing(); {
	case !s.Keeps(list[i]):
		return refusal.WithHint("they are being stopped; wait for that")
	case silent != nil:
		refusal.Message += fmt.Sprintf(
			"; it waits for the agent of node %s, which has not told since the restore what runs there", silent.Name)
		return refusal.WithHint(owingHint, silent.Name)
	}
	return refusal.WithHint("to stop it: outspan instance stop %s", list[i].ID)
}

// Keeps reports whether an instance that the state does not know goes on running although the restore is confirmed: it
// holds its slot, and a person has not decided yet. Of one that has a row the state has decided: it ends. So it has of
// one that was not known of when its slot was filled after the confirmation.
func (s *State) Keeps(h model.Holding) bool {
	if s.Instances.Has(h.ID) || s.filledSince(h.Group, h.Slot) {
		return false
	}
	g, ok := s.Groups.Get(h.Group)
	if !ok || h.Ends || g.Removed || h.Slot >= g.Count {
		return false
	}
	spec, ok := s.Spec(h.Group, g.Version)
	return ok && holdsSlot(spec)
}

// filledSince reports whether a slot got an instance, which may still run, after the last restore was confirmed.
func (s *State) filledSince(group model.GroupID, slot int) bool {
	if s.Unconfirmed || s.Confirmed == 0 {
		return false
	}
	for inst := range s.InstancesInSlot(group, slot) {
		if inst.holdsClaims() && inst.Marks.Created >= s.Confirmed {
			return true
		}
	}
	return false
}

// SlotFilled reports whether an instance of the state may run in a slot.
func (s *instances) SlotFilled(group model.GroupID, slot int) bool {
	_, busy := s.slotBusy(group, slot)
	return busy
}

// strangers are the holdings of a full report that have no row. Whole tells that they are all that can hold a slot: a
// node has room for maxHoldings, and those that go on running are the first to get it.
func (s *State) strangers(c *NodeReport) (list []model.Holding, whole bool) {
	n, _ := s.Nodes.Get(c.ID)
	list = s.strangeHoldings(c)
	for i := range list {
		list[i].Ends, list[i].Late = n.Restore.Ends(list[i].ID), n.late(s, list[i])
	}
	if len(list) <= maxHoldings {
		return list, true
	}
	holds := func(h model.Holding) bool { return h.Group == "" || s.Keeps(h) }
	slices.SortStableFunc(list, func(a, b model.Holding) int { return count(holds(b)) - count(holds(a)) })
	whole = !holds(list[maxHoldings])
	list = list[:maxHoldings]
	slices.SortFunc(list, func(a, b model.Holding) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return list, whole
}

// strangeHoldings returns the holdings of a report that have no row, in order of id, within the bounds of a holding.
func (s *instances) strangeHoldings(c *NodeReport) (list []model.Holding) {
	for _, h := range c.Holds {
		if max(len(h.ID), len(h.Group), len(h.Spec)) > maxHoldingName || !s.strange(c, h.ID) {
			continue
		}
		if !boundedParts(h) {
			h.Spec, h.Ports, h.Copies = "", nil, nil
		}
		list = append(list, h)
	}
	slices.SortStableFunc(list, func(a, b model.Holding) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return slices.CompactFunc(list, func(a, b model.Holding) bool { return a.ID == b.ID })
}

// strange reports whether an instance that an agent has is not one that the state has there. One that the state holds
// for stopped is, if the agent says something newer.
func (s *instances) strange(c *NodeReport, id model.InstanceID) bool {
	inst, ok := s.Instances.Get(id)
	if !ok || inst.Node != c.ID {
		return true
	}
	if !inst.Terminal() {
		return false
	}
	i := slices.IndexFunc(c.Instances, func(status model.InstanceStatus) bool { return status.ID == id })
	return i >= 0 && (c.Epoch > inst.Status.Epoch || c.Instances[i].Generation > inst.Status.Generation)
}

// sameHistory reports whether the agent that sent a report follows this state, and not one that a restore replaced.
func (c *NodeReport) sameHistory(s *State) bool { return c.Incarnation == s.Incarnation }

// takeHoldings notes what a full report has that the state does not know.
func (s *State) takeHoldings(c *NodeReport) {
	n, _ := s.Nodes.Get(c.ID)
	if !c.sameHistory(s) {
		return
	}
	next := n.Restore
	unknown, whole := s.strangers(c)
	next.Owes, next.Behind, next.Unknown = next.Owes && !whole, next.Behind && !whole, unknown
	if whole {
		next.Told = s.Restored
	}
	s.setRestore(n, next)
}

// newHoldings reports whether a full report changes what takeHoldings noted.
func (s *State) newHoldings(c *NodeReport) bool {
	n, _ := s.Nodes.Get(c.ID)
	if !c.sameHistory(s) {
		return false
	}
	unknown, _ := s.strangers(c)
	return n.Restore.Owes || n.Restore.Behind || n.Restore.Told < s.Restored ||
		!slices.EqualFunc(n.Restore.Unknown, unknown, equalHoldings)
}

// dropStopped takes note that unknown instances of a node have stopped.
func (s *State) dropStopped(c *NodeReport) {
	n, _ := s.Nodes.Get(c.ID)
	if len(n.Restore.Unknown) == 0 {
		return
	}
	next := n.Restore
	next.Unknown = slices.DeleteFunc(slices.Clone(next.Unknown), func(h model.Holding) bool { return c.stopped(h.ID) })
	s.setRestore(n, next)
}

// stopped reports whether a report says that an instance has stopped.
func (c *NodeReport) stopped(id model.InstanceID) bool {
	return slices.ContainsFunc(c.Instances, func(status model.InstanceStatus) bool {
		return status.ID == id && status.Observed == model.ObservedStopped
	})
}

// setRestore writes what a restore left open on a node. When something is settled by it, agents ask again whether what
// they wait with may start.
func (s *State) setRestore(n *Node, r NodeRestore) {
	was := n.Restore
	if len(r.Unknown) == 0 {
		r.Unknown = nil // as it reads back
	}
	if was.Owes == r.Owes && was.Raised == r.Raised && was.Behind == r.Behind && was.Told == r.Told &&
		slices.EqualFunc(was.Unknown, r.Unknown, equalHoldings) {
		return
	}
	next := *n
	next.Restore = r
	s.putNode(&next)
	s.touch("nodes", Topic("node/"+n.ID))
	switch {
	case was.Owes && !r.Owes:
		s.callAgents()
	case !slices.EqualFunc(was.Unknown, r.Unknown, equalHoldings):
		s.callConcerned(n.ID, was.Unknown, r.Unknown)
	case was.Behind != r.Behind:
		s.callAgent(n.ID) // it may stop what is not to be kept
	}
}

// endHolding is a person's word that an unknown instance is to stop. Code: not_found.
func (s *State) endHolding(id model.InstanceID) error {
	for node := range s.restoring.All() {
		n, _ := s.Nodes.Get(node)
		i := slices.IndexFunc(n.Restore.Unknown, func(h model.Holding) bool { return h.ID == id })
		if i < 0 {
			continue
		}
		next := n.Restore
		next.Unknown = slices.Clone(next.Unknown)
		next.Unknown[i].Ends = true
		s.setRestore(n, next)
		return nil
	}
	return model.Refuse(model.CodeNotFound, "there is no instance %s", id)
}

// UnknownOn returns the node that has an instance without a row.
func (s *fleet) UnknownOn(id model.InstanceID) (*Node, model.Holding, bool) {
	for node := range s.restoring.All() {
		n, _ := s.Nodes.Get(node)
		for _, h := range n.Restore.Unknown {
			if h.ID == id {
				return n, h, true
			}
		}
	}
	return nil, model.Holding{}, false
}

// beginRestore notes that no node has told since the restore what runs there. That one was confirmed dead was said of a
// silence that may have ended in the entries that are lost.
func (s *State) beginRestore() {
	var nodes []*Node
	for _, n := range s.Nodes.All() {
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		next := *n
		next.Restore.Owes, next.Restore.Raised, next.Return.ConfirmedDead = true, false, false
		s.putNode(&next)
		s.touch("nodes", Topic("node/"+n.ID))
	}
}
