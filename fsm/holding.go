package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

// NodeRestore is the part of a node's row that restores need: whether the node's agent still owes its inventory, and
// which of its instances the state does not know.
type NodeRestore struct {
	InventoryOwed bool            `cbor:"1,keyasint,omitempty"` // the agent owes its inventory since the last restore
	Raised        bool            `cbor:"2,keyasint,omitempty"` // the agent raised the incarnation after the last restore
	Unknown       []model.Holding `cbor:"3,keyasint,omitempty"` // instances on the node that have no row, in order of id
	// the agent knew only older incarnations when it registered, and has not sent its whole inventory since
	Behind bool   `cbor:"4,keyasint,omitempty"`
	Told   uint64 `cbor:"5,keyasint,omitempty"` // State.Restored when the agent last sent a whole inventory
}

func equalHoldings(h model.Holding, o model.Holding) bool {
	return h.ID == o.ID && h.Group == o.Group && h.Slot == o.Slot && h.Ends == o.Ends && h.Late == o.Late &&
		h.Spec == o.Spec && h.RestartSeq == o.RestartSeq &&
		slices.Equal(h.Ports, o.Ports) && slices.Equal(h.Copies, o.Copies)
}

// maxHoldings bounds the unknown instances that a node's row lists.
const maxHoldings = 1024

// maxHoldingName bounds each string of a holding, in bytes. The longest valid string, the group "job/group", has at
// most 127.
const maxHoldingName = 128

// maxHoldingParts bounds the ports and volumes of a holding together.
const maxHoldingParts = 64

// Ends reports whether an instance that the agent has and the state does not know must stop. For an instance in
// r.Unknown, this was decided earlier. Any other instance must stop unless the agent owes its inventory or is Behind.
// If neither applies, the agent has followed this state: the state itself removed the instance's row, and no restore
// lost it.
func (r *NodeRestore) Ends(id model.InstanceID) bool {
	if i := slices.IndexFunc(r.Unknown, func(h model.Holding) bool { return h.ID == id }); i >= 0 {
		return r.Unknown[i].Ends
	}
	return !r.InventoryOwed && !r.Behind
}

// unheard reports whether the node owes its inventory since a restore and is not offline. n may be nil.
func (n *Node) unheard() bool {
	return n != nil && n.Restore.InventoryOwed && n.Health != model.HealthOffline
}

// late returns the value of Late for an unknown instance that an agent reports. An instance that is already in
// Restore.Unknown keeps its value. Any other instance is late, except in two cases: the node owes its inventory since a
// restore; or the state was once restored, the node is Behind, and the report names the instance's group.
func (n *Node) late(s *State, h model.Holding) bool {
	if i := slices.IndexFunc(n.Restore.Unknown, func(o model.Holding) bool { return o.ID == h.ID }); i >= 0 {
		return n.Restore.Unknown[i].Late
	}
	restored := s.Unconfirmed || s.Confirmed > 0
	return !n.Restore.InventoryOwed && !(n.Restore.Behind && restored && h.Group != "")
}

// pending reports whether the node owes its inventory since a restore, or has instances that the state does not know.
func (r *NodeRestore) pending() bool { return r.InventoryOwed || len(r.Unknown) > 0 }

// holdsSlot reports whether a group's instances hold their slots even if the state does not know the instances. They do
// if the group's slots have one holder, if the group has volumes, or if its instances are never replaced.
func holdsSlot(g *model.GroupSpec) bool {
	return g.OneHolder() || len(g.Volumes) > 0 || g.Replacement.Mode == model.ModeNever
}

// SlotUnsettled returns a refusal if an instance that the state does not know may hold a slot, and nil otherwise. As
// long as it refuses, no instance is placed in the slot, and an instance that was placed there is not started. Codes:
// restore_unconfirmed, slot_taken, inventory_missing.
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
	silent, holder := s.firstOwingInventory(), (*model.Error)(nil)
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
	case holder != nil: // the holder can't be adopted until all agents have sent their inventories
		holder.Message += fmt.Sprintf(
			"; it waits for the agent of node %s, which has not told since the restore what runs there", silent.Name)
		return holder.WithHint(owingHint, silent.Name)
	}
	return model.Refuse(model.CodeInventoryMissing,
		"slot %d of %s may be filled already: the agent of node %s has not told since the restore what runs there",
		slot, group, silent.Name).
		WithHint(owingHint, silent.Name)
}

// blocker returns an unknown instance of a node that may hold a slot, or false if there is none. It ignores the
// instance whose id is in but. An unknown instance whose group is not known may hold any slot. A late instance (see
// Holding.Late) only blocks slots of groups that have an instance or a volume on the node, so that an agent can't block
// other groups.
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

// mayBlock reports whether an unknown instance on a node may hold a slot of a group: the node owes its inventory, or
// blocker would return such an instance for at least one slot of the group.
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
	return n.Restore.InventoryOwed || late && s.wasOn(n.ID, group)
}

// wasOn reports whether the state has an instance, even a terminal one, or a volume of a group on a node.
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

// firstOwingInventory returns the first node, by id, that owes its inventory since a restore, or nil if there is none.
func (s *fleet) firstOwingInventory() *Node {
	for id := range s.restoring.All() {
		if n, _ := s.Nodes.Get(id); n.Restore.InventoryOwed {
			return n
		}
	}
	return nil
}

// unknownLeft returns the refusal to end a drain of a node that has unknown instances. Its hint says what must happen
// to these instances.
func (s *State) unknownLeft(n *Node) *model.Error {
	list := n.Restore.Unknown
	i := max(slices.IndexFunc(list, s.Keeps), 0)
	refusal := model.Refuse(model.CodeUnknownInstance,
		"the restored state does not know %d of the instances that run here, such as %s", len(list), list[i].ID)
	switch silent := s.firstOwingInventory(); {
	case !s.Keeps(list[i]):
		return refusal.WithHint("they are being stopped; wait for that")
	case silent != nil:
		refusal.Message += fmt.Sprintf(
			"; it waits for the agent of node %s, which has not told since the restore what runs there", silent.Name)
		return refusal.WithHint(owingHint, silent.Name)
	}
	return refusal.WithHint("to stop it: outspan instance stop %s", list[i].ID)
}

// Keeps reports whether an instance that the state does not know keeps running after the restore is confirmed. It does
// if its group holds slots (see holdsSlot) and still has the instance's slot. In three cases it stops nevertheless:
// h.Ends is true, the state has a row with its id, or its slot got another instance after the confirmation.
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

// filledSince reports whether a slot has an instance that was created after the last restore was confirmed and that may
// still run.
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

// SlotFilled reports whether a slot has an instance that is not confirmed stopped. It ignores unknown instances.
func (s *instances) SlotFilled(group model.GroupID, slot int) bool {
	_, busy := s.slotBusy(group, slot)
	return busy
}

// unknownHoldings returns the holdings of a full report that have no row, but at most maxHoldings. Those for which
// Keeps returns true or whose group is unknown take precedence. whole is false if even one of those had to be dropped.
func (s *State) unknownHoldings(c *NodeReport) (list []model.Holding, whole bool) {
	n, _ := s.Nodes.Get(c.ID)
	list = s.holdingsWithoutRow(c)
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

// holdingsWithoutRow returns the holdings of a report that have no row, in order of id, each id once. It drops holdings
// whose id, group or spec is too long. It clears the ports, copies and spec of a holding for which boundedParts is
// false.
func (s *instances) holdingsWithoutRow(c *NodeReport) (list []model.Holding) {
	for _, h := range c.Holds {
		if max(len(h.ID), len(h.Group), len(h.Spec)) > maxHoldingName || !s.isUnknown(c, h.ID) {
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

// isUnknown reports whether the state has no instance with this id on the agent's node. A terminal instance is also
// unknown if the agent reports a newer status of it.
func (s *instances) isUnknown(c *NodeReport, id model.InstanceID) bool {
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

// sameHistory reports whether the agent that sent the report follows this state, and not a state from before a restore.
func (c *NodeReport) sameHistory(s *State) bool { return c.Incarnation == s.Incarnation }

// takeHoldings records the unknown instances of a full report. It ignores an agent that still follows a state from
// before a restore.
func (s *State) takeHoldings(c *NodeReport) {
	n, _ := s.Nodes.Get(c.ID)
	if !c.sameHistory(s) {
		return
	}
	next := n.Restore
	unknown, whole := s.unknownHoldings(c)
	next.InventoryOwed, next.Behind, next.Unknown = next.InventoryOwed && !whole, next.Behind && !whole, unknown
	if whole {
		next.Told = s.Restored
	}
	s.setRestore(n, next)
}

// newHoldings reports whether takeHoldings may change the node's row.
func (s *State) newHoldings(c *NodeReport) bool {
	n, _ := s.Nodes.Get(c.ID)
	if !c.sameHistory(s) {
		return false
	}
	unknown, _ := s.unknownHoldings(c)
	return n.Restore.InventoryOwed || n.Restore.Behind || n.Restore.Told < s.Restored ||
		!slices.EqualFunc(n.Restore.Unknown, unknown, equalHoldings)
}

// dropStopped removes from Restore.Unknown the instances that have stopped according to a report.
func (s *State) dropStopped(c *NodeReport) {
	n, _ := s.Nodes.Get(c.ID)
	if len(n.Restore.Unknown) == 0 {
		return
	}
	next := n.Restore
	next.Unknown = slices.DeleteFunc(slices.Clone(next.Unknown), func(h model.Holding) bool { return c.stopped(h.ID) })
	s.setRestore(n, next)
}

func (c *NodeReport) stopped(id model.InstanceID) bool {
	return slices.ContainsFunc(c.Instances, func(status model.InstanceStatus) bool {
		return status.ID == id && status.Observed == model.ObservedStopped
	})
}

// setRestore replaces n.Restore by r. It makes the agents whose instances may have to start or stop because of this
// change read their assignments again.
func (s *State) setRestore(n *Node, r NodeRestore) {
	was := n.Restore
	if len(r.Unknown) == 0 {
		r.Unknown = nil // as the codec decodes an empty list
	}
	if was.InventoryOwed == r.InventoryOwed && was.Raised == r.Raised && was.Behind == r.Behind && was.Told == r.Told &&
		slices.EqualFunc(was.Unknown, r.Unknown, equalHoldings) {
		return
	}
	next := *n
	next.Restore = r
	s.putNode(&next)
	s.touch("nodes", Topic("node/"+n.ID))
	switch {
	case was.InventoryOwed && !r.InventoryOwed:
		s.callAgents()
	case !slices.EqualFunc(was.Unknown, r.Unknown, equalHoldings):
		s.callConcerned(n.ID, was.Unknown, r.Unknown)
	case was.Behind != r.Behind:
		s.callAgent(n.ID) // the agent may now have to stop instances
	}
}

// endHolding records that an unknown instance must stop. Code: not_found.
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

// UnknownOn returns the node of an unknown instance, and what the node's agent reported of the instance. It returns
// false if no node has such an instance.
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

// beginRestore records on each node that its agent owes an inventory. It also clears Raised, which is about one
// restore, and ConfirmedDead, because the node may have come back in the entries that the restore lost.
func (s *State) beginRestore() {
	var nodes []*Node
	for _, n := range s.Nodes.All() {
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		next := *n
		next.Restore.InventoryOwed, next.Restore.Raised, next.Return.ConfirmedDead = true, false, false
		s.putNode(&next)
		s.touch("nodes", Topic("node/"+n.ID))
	}
}
