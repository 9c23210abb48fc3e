package fsm

import (
	"slices"

	"github.com/outspan/outspan/model"
)

// MaxReportItems is the most instances, transfers and holdings that one report may have in all.
const MaxReportItems = 16384

// CheckSize returns nil if a report has at most MaxReportItems items. Code: too_large.
func (c *NodeReport) CheckSize() *model.Error {
	if n := len(c.Instances) + len(c.Transfers) + len(c.Holds); n > MaxReportItems {
		return model.Refuse(model.CodeTooLarge, "a report has %d instances and transfers, at most %d are allowed",
			n, MaxReportItems).
			WithHint("spread the node's instances over more nodes")
	}
	return nil
}

// NamesUnknown reports whether a report names an instance or a transfer that the state s does not have on the report's
// node, or lists holdings although the agent follows another incarnation of the state. If so, s may be older than what
// the agent has seen.
func (c *NodeReport) NamesUnknown(s *State) bool {
	for _, status := range c.Instances {
		if inst, ok := s.Instances.Get(status.ID); !ok || inst.Node != c.ID {
			return true
		}
	}
	for _, r := range c.Transfers {
		if t, ok := s.Transfers.Get(r.ID); !ok || !t.concerns(c.ID) {
			return true
		}
	}
	return len(c.Holds) > 0 && !c.sameHistory(s)
}

// Trim drops the parts of a report that neither s nor a later state would accept: parts about other nodes, duplicates,
// and what exceeds bounds. Then the log does not store them. s must not be older than what the agent has seen.
func (c *NodeReport) Trim(s *State) {
	n, ok := s.Nodes.Get(c.ID)
	if !ok {
		c.Instances, c.Transfers, c.Holds = nil, nil, nil
		return
	}
	unknown := map[model.InstanceID]bool{}
	for _, h := range n.Restore.Unknown {
		unknown[h.ID] = true
	}
	newest := newestStatuses(slices.Clone(c.Instances)) // first, so that no older status of an unknown instance counts
	c.Instances = slices.DeleteFunc(newest, func(status model.InstanceStatus) bool {
		inst, ok := s.Instances.Get(status.ID)
		own := ok && inst.Node == c.ID
		return !own && !(status.Observed == model.ObservedStopped && unknown[status.ID])
	})
	for i := range c.Instances {
		trimStatus(&c.Instances[i])
	}
	c.Transfers = lastReports(slices.DeleteFunc(slices.Clone(c.Transfers), func(r model.TransferReport) bool {
		t, ok := s.Transfers.Get(r.ID)
		return !ok || !r.State.Valid() || !t.concerns(c.ID)
	}))
	for i := range c.Transfers {
		r := &c.Transfers[i]
		r.Code, r.Message, r.Sum = model.Code(model.ClipText(string(r.Code), 64)), model.ClipText(r.Message, 256),
			model.ClipText(r.Sum, 64)
	}
	c.Holds = s.trimHoldings(c)
	if c.Self != nil {
		self := *c.Self
		self.Troubles, self.Disk, self.Ports = keptTroubles(&self), toldDisk(&self), keptPorts(&self)
		self.Runtime = keptRuntime(self.Runtime)
		c.Self = &self
	}
}

// trimStatus cuts an agent's status of one instance to the bounds of a row.
func trimStatus(status *model.InstanceStatus) {
	status.Reason = model.ClipText(status.Reason, maxAgentText)
	status.Facts = CleanFacts(status.Facts)
	if status.Hook != nil {
		short := *status.Hook
		short.Message = model.ClipText(short.Message, maxHookMessage)
		status.Hook = &short
	}
}

// newestStatuses keeps the newest status of each instance, at the position of the instance's first status. It
// overwrites list.
func newestStatuses(list []model.InstanceStatus) []model.InstanceStatus {
	kept, at := list[:0], map[model.InstanceID]int{}
	for _, status := range list {
		i, twice := at[status.ID]
		switch {
		case !twice:
			at[status.ID] = len(kept)
			kept = append(kept, status)
		case status.Generation > kept[i].Generation:
			kept[i] = status
		}
	}
	return kept
}

// lastReports keeps the last report of each transfer, at the position of the transfer's first report. It overwrites
// list.
func lastReports(list []model.TransferReport) []model.TransferReport {
	kept, at := list[:0], map[model.TransferID]int{}
	for _, r := range list {
		i, twice := at[r.ID]
		if !twice {
			i = len(kept)
			at[r.ID] = i
			kept = append(kept, r)
		}
		kept[i] = r
	}
	return kept
}

// trimHoldings returns the holdings of a full report that have no row. It returns at most maxHoldings+1 of them: the
// extra one shows that the node has more than the state can keep. If it must drop some, it first drops those that hold
// no slot.
func (s *State) trimHoldings(c *NodeReport) []model.Holding {
	if !c.Full || !c.sameHistory(s) {
		return nil
	}
	list := s.holdingsWithoutRow(c)
	if len(list) > maxHoldings+1 {
		holds := func(h model.Holding) bool { return h.Group == "" || s.Keeps(h) }
		slices.SortStableFunc(list, func(a, b model.Holding) int { return count(holds(b)) - count(holds(a)) })
		list = list[:maxHoldings+1]
	}
	return list
}

// boundedParts reports whether a holding has at most maxHoldingParts ports and copies in all, and only names of at most
// maxHoldingName bytes.
func boundedParts(h model.Holding) bool {
	for _, p := range h.Ports {
		if len(p.Name) > maxHoldingName {
			return false
		}
	}
	for _, v := range h.Copies {
		if len(v.Name) > maxHoldingName {
			return false
		}
	}
	return len(h.Ports)+len(h.Copies) <= maxHoldingParts
}

// concerns reports whether a node takes part in a transfer or keeps the old copy that the transfer left.
func (t *Transfer) concerns(node model.NodeID) bool {
	return node == t.From || node == t.To || node == t.Left.Old
}
