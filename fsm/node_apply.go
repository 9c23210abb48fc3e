package fsm

import (
	"cmp"
	"slices"

	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

// A node that keeps going offline is flapping. When it returns, it gets no new placements for a while.
const (
	flapWindow = 10 * model.Minute // a return within this time after the last one is a flap
	flapHold   = 30 * model.Second // time without placements after the first flap
	flapMax    = 30 * model.Minute // longest time without placements
)

// setNode replaces a node's row, raises its version, and emits an event if the node's state changes. It wakes the
// agent's poll if the node is new or assignedAnew is true.
func (s *State) setNode(before *Node, after Node) {
	after.Version++
	changed := before != nil && before.State() != after.State()
	if changed {
		s.noteLeftOut(&after.Self.Events, lastState, string(before.State()))
	}
	s.putNode(&after)
	s.touch("nodes", Topic("node/"+after.ID))
	if before == nil || assignedAnew(before, &after) {
		s.touchObject("assigned/", string(after.ID))
	}
	if changed {
		s.emit(after.stateEvent(string(before.State())))
	}
}

// stateEvent returns the event for a change of the node's state. The parameter before is the earlier state.
func (n *Node) stateEvent(before string) Event {
	data := map[string]string{"name": n.Name}
	if n.State() == model.NodeDegraded && n.Troubled() {
		data["reason"] = n.Self.Words()
	}
	return Event{Type: model.EventNodeState, Subject: "node/" + string(n.ID), Before: before,
		After: string(n.State()), Data: data}
}

// assignedAnew reports whether a change of the node's own row changes what its agent must run or know, so that the
// agent's pending poll must be answered. A new label does not wake the poll, because that would cost a request of the
// agent for each write.
func assignedAnew(before, after *Node) bool {
	return before.Assigned != after.Assigned || before.Agent.Epoch != after.Agent.Epoch || before.Health != after.Health
}

func (c *NodeRegister) apply(s *State) error {
	if !model.ValidName(c.Name) || !model.ValidName(string(c.ID)) || c.Agent.BootID == "" {
		return model.Refuse(model.CodeInvalid,
			"a node needs a boot id, and an id and a name of 1 to 63 letters, digits, '-', '_' or '.'; got name %q", c.Name)
	}
	if refusal := c.checkBounds(); refusal != nil {
		return refusal
	}
	if c.Agent.Reads() < s.Format {
		return model.Refuse(model.CodeNeedsFormat,
			"the cluster writes format %d, and the agent of node %s reads formats up to %d", s.Format, c.Name, c.Agent.Reads()).
			WithHint("start a newer agent on that machine; what runs there goes on meanwhile")
	}
	if s.AgentRevoked(c.Name) {
		return model.Refuse(model.CodeMemberRevoked, "the agent of node %s was revoked", c.Name).
			WithHint("to use that machine again, let it join with a token: outspan join")
	}
	if owner, ok := s.nodeNames.Get(c.Name); ok && owner != c.ID {
		return model.Refuse(model.CodeNameTaken, "the name %s belongs to the node %s", c.Name, owner).
			WithHint("choose another name, or remove the old node: outspan node forget %s", owner)
	}
	old, known := s.Nodes.Get(c.ID)
	refusal := c.refusedBefore(old)
	if known && refusal == nil {
		refusal = c.takesOver(s, old)
	}
	if refusal != nil {
		return refusal
	}
	incarnation, refusal := s.above(c.Name, c.Seen, known && old.Restore.Raised)
	if refusal != nil {
		return refusal
	}
	raises := incarnation > s.Incarnation
	if raises {
		s.Incarnation = incarnation
		s.callAgents() // old now lacks the new Assigned, which is set below anyway
	}
	n := Node{ID: c.ID, Intent: model.IntentActive, Restore: NodeRestore{InventoryOwed: s.Unconfirmed}}
	if known {
		n = *old
	}
	epoch := max(n.Agent.Epoch+1, s.MomentNumber())
	if plant.Is(plant.EpochAgain) {
		epoch = n.Agent.Epoch + 1
	}
	n.Name, n.Agent, n.Health = c.Name, c.Agent, model.HealthOnline
	n.Agent.Epoch, n.Agent.Warnings = epoch, CutWarnings(c.Agent.Warnings)
	n.Registrations++
	n.Restore.Raised = n.Restore.Raised || raises
	toldSince := s.Restored > 0 && n.Restore.Told >= s.Restored // the agent sent its inventory after the restore
	n.Restore.Behind = n.Restore.Behind || c.Seen.Incarnation < s.Incarnation && !toldSince
	n.Shape = c.Shape
	if c.Shape.Labels != nil {
		n.Labels = n.Labels.withAgent(c.Shape.Labels)
	}
	n.Shape.Labels = n.Labels.all(s.tokenLabels(c.Name))
	n.Return.Recovering, n.Return.ConfirmedDead = true, false
	if known && old.Health == model.HealthOffline {
		n.Return.Hold, n.Return.HeldUntil = s.flapHold(old)
	}
	n.Assigned, n.FactsGen, n.Self.Gen = s.Index, 0, 0
	s.setNode(old, n)
	if known && (old.Name != n.Name || old.Agent.Address != n.Agent.Address) {
		s.movePeers(n.ID)
	}
	s.keepPromises(n.ID)
	s.dropFacts(n.ID)
	s.emit(Event{Type: model.EventNodeRegistered, Subject: "node/" + string(n.ID),
		Data: map[string]string{"name": n.Name, "address": n.Agent.Address, "boot_id": n.Agent.BootID}})
	return nil
}

// flapHold returns how long a node that returns now gets no placements, and until when. The time is 30 s, doubled at
// each flap, up to 30 min. Both results are 0 if the node never returned before, or if its last return was longer ago
// than both flapWindow and twice the last hold.
func (s *State) flapHold(n *Node) (model.Duration, model.Time) {
	if n.Return.LastReturn == 0 || s.Now.Sub(n.Return.LastReturn) > max(flapWindow, 2*n.Return.Hold) {
		return 0, 0
	}
	hold := min(max(2*n.Return.Hold, flapHold), flapMax)
	return hold, s.Now.Add(hold)
}

func (c *NodeHealth) apply(s *State) error {
	n, ok := s.Nodes.Get(c.ID)
	switch {
	case !ok:
		return model.Refuse(model.CodeNotFound, "there is no node %s", c.ID)
	case n.Agent.Epoch != c.Epoch || n.Agent.BootID != c.BootID:
		return model.Refuse(model.CodeStale, "node %s registered since it was judged", n.Name)
	case !slices.Contains([]model.Health{model.HealthOnline, model.HealthDegraded, model.HealthUnreachable,
		model.HealthOffline}, c.Health):
		return model.Refuse(model.CodeInvalid, "%q is no health of a node", c.Health)
	case n.Health == c.Health:
		return nil
	case n.Health == model.HealthOffline:
		return model.Refuse(model.CodeConflict, "node %s is offline until its agent registers again", n.Name)
	case c.Health == model.HealthOffline && s.Hold.Active:
		return model.Refuse(model.CodeHold, "node %s is silent, but a hold is set: no node is declared offline", n.Name)
	}
	next := *n
	next.Health = c.Health
	if c.Health == model.HealthOffline {
		next.Return.OfflineSince = s.Now
		next.Return.Recovering = false
	}
	s.setNode(n, next)
	if c.Health == model.HealthOffline {
		for inst := range s.InstancesOn(c.ID) {
			s.markLost(inst)
		}
		s.dropPullsOn(c.ID)
	}
	return nil
}

func (s *State) markLost(inst *Instance) {
	if !inst.holdsClaims() || inst.Status.Observed == model.ObservedLost {
		return
	}
	status := inst.Status
	status.Observed, status.Reason = model.ObservedLost, string(model.CauseNodeOffline)
	s.observe(inst, status)
}

// TakesReport returns nil if a report with this epoch is accepted. It refuses the report if the node is at another
// epoch or is offline. Code: stale.
func (n *Node) TakesReport(epoch uint64) *model.Error {
	if n.Agent.Epoch == epoch && n.Health != model.HealthOffline {
		return nil
	}
	return model.Refuse(model.CodeStale, "node %s is at epoch %d and %s; the report is of epoch %d", n.Name, n.Agent.Epoch,
		n.Health, epoch).WithHint("the agent must register again")
}

func (c *NodeReport) apply(s *State) error {
	n, ok := s.Nodes.Get(c.ID)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no node %s", c.ID).WithHint("the agent must register first")
	}
	if refusal := n.TakesReport(c.Epoch); refusal != nil {
		return refusal
	}
	if s.entry.actor == model.ActorAgents {
		s.entry.actor = model.ActorAgent(n.Name)
		defer func() { s.entry.actor = model.ActorAgents }()
	}
	for _, status := range c.Instances {
		if inst, ok := s.Instances.Get(status.ID); ok && inst.Node == c.ID {
			s.report(inst, status, c.Epoch)
		}
	}
	for _, r := range c.Transfers {
		s.reportTransfer(c.ID, r)
	}
	s.dropStopped(c)
	s.takeFactsGen(c)
	s.takeSelf(c)
	if c.Full {
		s.takeInventory(c)
	}
	return nil
}

// takeFactsGen records the generation of the node's facts that c reports, if it is newer than the known one.
func (s *State) takeFactsGen(c *NodeReport) {
	n, _ := s.Nodes.Get(c.ID)
	if c.FactsGen <= n.FactsGen {
		return
	}
	next := *n
	next.FactsGen = c.FactsGen
	s.putNode(&next)
	s.touch(Topic("node/" + n.ID))
}

// News reports whether a report may change s. If it returns false, the report can't change a later state either and
// needs no entry. It also returns true if s lacks a row that the report names or would refuse the report, because s may
// be older than what the agent has seen.
func (c *NodeReport) News(s *State) bool {
	n, ok := s.Nodes.Get(c.ID)
	if !ok || n.TakesReport(c.Epoch) != nil || c.FactsGen > n.FactsGen || len(c.Transfers) > 0 || c.newsOfSelf(n) {
		return true
	}
	for _, status := range c.Instances {
		status.Epoch = c.Epoch
		inst, ok := s.Instances.Get(status.ID)
		if !ok || inst.Node != c.ID || inst.WaitsForRoom() || inst.acceptsStatus(status) {
			return true
		}
	}
	if slices.ContainsFunc(n.Restore.Unknown, func(h model.Holding) bool { return c.stopped(h.ID) }) {
		return true
	}
	return c.Full && (n.Return.Recovering || len(s.missing(c)) > 0 || s.newHoldings(c))
}

// missing lists the instances that have room on a node but are not in the node's full report. Pending instances are not
// listed, because the agent may not have known of them when it made the report.
func (s *instances) missing(c *NodeReport) []*Instance {
	var gone []*Instance
	for inst := range s.InstancesOn(c.ID) {
		there := slices.ContainsFunc(c.Instances, func(r model.InstanceStatus) bool { return r.ID == inst.ID })
		if !there && inst.takesRoom() && inst.Status.Observed != model.ObservedPending {
			gone = append(gone, inst)
		}
	}
	return gone
}

// takeInventory applies a full report. Instances that the report lacks are marked as failed, the node is no longer
// recovering, and instances that the agent runs but the state does not know are recorded.
func (s *State) takeInventory(c *NodeReport) {
	for _, inst := range s.missing(c) {
		status := inst.Status
		status.Observed, status.Reason, status.Epoch = model.ObservedFailed, "gone_from_node", c.Epoch
		s.accept(inst, status)
	}
	n, _ := s.Nodes.Get(c.ID)
	if n.Return.Recovering {
		next := *n
		next.Return.Recovering = false
		if n.Return.OfflineSince > n.Return.LastReturn {
			next.Return.LastReturn = s.Now
		}
		s.setNode(n, next)
	}
	s.takeHoldings(c)
}

func (c *NodeIntent) apply(s *State) error {
	n, ok := s.Nodes.Get(c.ID)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no node %s", c.ID)
	}
	if n.Intent == c.Intent {
		return nil
	}
	if !intentEdge(n.Intent, c.Intent) {
		return model.Refuse(model.CodeConflict, "node %s is %s and can't become %s", n.Name, n.Intent, c.Intent).
			WithHint("%s", intentHint(n))
	}
	if n.Intent == model.IntentDisabled && n.Health != model.HealthOffline && n.Agent.Reads() < s.Format {
		return model.Refuse(model.CodeNeedsFormat,
			"the cluster writes format %d, and the agent of node %s reads formats up to %d", s.Format, n.Name, n.Agent.Reads()).
			WithHint("upgrade the agent on that machine first")
	}
	over := n.Intent == model.IntentDraining || n.Intent == model.IntentDisabled
	if over {
		s.endDrainOf(n, model.PhaseCanceled, "node is "+string(c.Intent)+" now")
		n, _ = s.Nodes.Get(c.ID) // endDrainOf may have written the row
	}
	next := *n
	next.Intent = c.Intent
	if over {
		next.Acked = nil
	}
	s.setNode(n, next)
	return nil
}

// intentEdge reports whether an operator may change an intent. Only DrainStart begins to drain a node.
func intentEdge(from, to model.Intent) bool {
	switch to {
	case model.IntentDisabled:
		return true
	case model.IntentCordoned:
		return from == model.IntentActive
	case model.IntentActive:
		return true
	}
	return false
}

func intentHint(n *Node) string {
	if n.Intent == model.IntentDisabled {
		return "enable it first: outspan node enable " + n.Name
	}
	return "uncordon it first: outspan node uncordon " + n.Name
}

func (c *NodeLabel) apply(s *State) error {
	n, ok := s.Nodes.Get(c.ID)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no node %s", c.ID)
	}
	next := *n
	token := s.tokenLabels(n.Name)
	next.Labels = n.Labels.set(c.Labels, token)
	next.Shape.Labels = next.Labels.all(token)
	if refusal := cmp.Or(model.CheckLabels(c.Labels), model.CheckLabels(next.Labels.People),
		model.CheckLabels(next.Shape.Labels)); refusal != nil {
		return refusal
	}
	s.setNode(n, next)
	return nil
}

func (c *NodeForget) apply(s *State) error {
	n, ok := s.Nodes.Get(c.ID)
	if !ok {
		return model.Refuse(model.CodeNotFound, "there is no node %s", c.ID)
	}
	if n.Health != model.HealthOffline {
		return model.Refuse(model.CodeConflict, "node %s is %s: its agent would register again", n.Name, n.State()).
			WithHint("stop its agent and wait until it is offline")
	}
	if n.Placed.Instances > 0 {
		return model.Refuse(model.CodeConflict, "node %s still holds %d instances", n.Name, n.Placed.Instances).
			WithHint("if the machine is gone: outspan node confirm-dead %s", n.Name)
	}
	if n.Restore.pending() {
		return model.Refuse(model.CodeConflict, "node %s may run what a restore has lost from the state", n.Name).
			WithHint("if the machine is known to be off: outspan node confirm-dead %s --force", n.Name)
	}
	if refusal := s.mayLose(n, c.LoseData); refusal != nil {
		return refusal
	}
	var rows []*Instance
	for inst := range s.InstancesOn(c.ID) {
		rows = append(rows, inst)
	}
	for _, inst := range rows {
		s.setInstance(inst, nil)
	}
	s.endDrainOf(n, model.PhaseCanceled, "node was forgotten")
	s.endTransfersOf(c.ID, n.Name)
	if !plant.Is(plant.ForgottenVolume) {
		s.loseVolumes(n)
	}
	s.dropVolumes(func(v *Volume) bool { return v.Home == c.ID })
	s.forgetAside(c.ID, n.Name)
	s.delNode(c.ID)
	s.touch("nodes", Topic("node/"+n.ID))
	s.emit(Event{Type: model.EventNodeState, Subject: "node/" + string(n.ID), Before: string(n.State()),
		After: "forgotten", Data: map[string]string{"name": n.Name}})
	return nil
}
