package fsm

import (
	"cmp"
	"slices"
	"strings"

	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

// NodeSelf is what an agent reports of its own machine. A node with troubles is degraded: it gets no new instances, and
// its instances leave after their group's toleration.not_ready.
type NodeSelf struct {
	Since    model.Time      `cbor:"1,keyasint,omitempty"` // when the node last became troubled; 0 without troubles
	Troubles []model.Trouble `cbor:"2,keyasint,omitempty"` // in order of check, each check once
	Gen      uint64          `cbor:"3,keyasint,omitempty"` // generation of the last report in this epoch (SelfReport.Gen)
	// Disk lists the instances above their disk limit, in order of id. They don't make the node degraded.
	Disk []model.DiskUse `cbor:"4,keyasint,omitempty"`
	// Ports lists the ports that the agent can't listen on, in order of port. They don't make the node degraded either.
	Ports []model.PortProblem `cbor:"5,keyasint,omitempty"`
	// Events counts the events that resulted from the agent's reports on its machine.
	Events SelfEvents `cbor:"6,keyasint,omitzero"`
	// Runtime is the node's container runtime; nil means that it has none.
	Runtime *NodeRuntime `cbor:"7,keyasint,omitempty"`
}

// Troubled reports whether the node's own agent reports troubles. They make the node degraded.
func (n *Node) Troubled() bool { return len(n.Self.Troubles) > 0 }

// Shown returns the health that people see: a node that is online but has troubles is shown as degraded.
func (n *Node) Shown() model.Health {
	if n.Health == model.HealthOnline && n.Troubled() {
		return model.HealthDegraded
	}
	return n.Health
}

// Words joins the reasons of the troubles. It returns an empty string if there are none.
func (x *NodeSelf) Words() string {
	reasons := make([]string, 0, len(x.Troubles))
	for _, t := range x.Troubles {
		reasons = append(reasons, t.Reason)
	}
	return strings.Join(reasons, "; ")
}

// checks lists the failing checks for an event. It returns "ok" if none fails.
func (x *NodeSelf) checks() string {
	names := make([]string, 0, len(x.Troubles))
	for _, t := range x.Troubles {
		names = append(names, string(t.Check))
	}
	return cmp.Or(strings.Join(names, ", "), "ok")
}

// keptTroubles returns those troubles of a report that the state keeps: known checks, each check once, in the order of
// SelfChecks.
func keptTroubles(r *model.SelfReport) []model.Trouble {
	var kept []model.Trouble
	for _, check := range model.SelfChecks() {
		i := slices.IndexFunc(r.Troubles, func(t model.Trouble) bool { return t.Check == check })
		if i >= 0 {
			reason := cmp.Or(r.Troubles[i].Reason, string(check))
			kept = append(kept, model.Trouble{Check: check, Reason: model.ClipText(reason, maxAgentText)})
		}
	}
	return kept
}

// takeSelf records what an agent reports of its own machine. A full report with Self nil comes from an agent that
// checks nothing, so it clears what was recorded.
func (s *State) takeSelf(c *NodeReport) {
	n, _ := s.Nodes.Get(c.ID)
	if !c.newsOfSelf(n) {
		return
	}
	defer s.boundSelfEvents(n)()
	next := *n
	next.Self = NodeSelf{Gen: n.Self.Gen, Events: n.Self.Events} // Gen stays, so an older, late report is ignored
	if c.Self != nil {
		next.Self.Troubles, next.Self.Gen = keptTroubles(c.Self), c.Self.Gen
		next.Self.Disk, next.Self.Ports = keptDisk(n, c.Self), keptPorts(c.Self)
		next.Self.Runtime = s.takeRuntime(n.Self.Runtime, c.Self)
		next.FailedPulls = slices.DeleteFunc(slices.Clone(n.FailedPulls), func(f FailedPull) bool {
			image, _ := next.Self.Runtime.image(f.Digest)
			return image.State == model.ImagePresent
		})
	}
	if next.Troubled() {
		next.Self.Since = cmp.Or(n.Self.Since, s.Now)
	}
	s.tellDisk(n, next.Self.Disk)
	s.tellPorts(n, &next)
	s.tellRuntime(n, &next)
	if slices.Equal(n.Self.Troubles, next.Self.Troubles) {
		s.putNode(&next)
		s.touch(Topic("node/" + n.ID))
		return
	}
	s.noteLeftOut(&next.Self.Events, lastChecks, n.Self.checks())
	s.setNode(n, next)
	s.emit(next.checksEvent(n.Self.checks()))
}

// checksEvent returns the event for a change of the failing checks. before lists the checks that failed before the
// change.
func (n *Node) checksEvent(before string) Event {
	return Event{Type: model.EventNodeChecks, Subject: "node/" + string(n.ID),
		Before: before, After: n.Self.checks(),
		Data: map[string]string{"name": n.Name, "reason": n.Self.Words()}}
}

// newsOfSelf reports whether a report changes what is recorded of the agent's own machine. It does if its Self is
// newer, or if it is a full report without Self and something is recorded.
func (c *NodeReport) newsOfSelf(n *Node) bool {
	if c.Self == nil {
		return c.Full && (n.Troubled() || len(n.Self.Disk)+len(n.Self.Ports) > 0 || n.Self.Runtime != nil)
	}
	return c.Self.Gen > n.Self.Gen
}

// Tolerated returns until when an instance stays on a node whose own agent reports troubles. leaves is false if the
// troubles don't make the instance leave: the node has none, the instance's group tolerates them forever or never
// leaves a node, or instances may be placed on degraded nodes. leaves is also false while a restore is not confirmed,
// or while the node is unreachable, offline, draining or disabled, because other rules apply then.
func (s *State) Tolerated(inst *Instance) (until model.Time, leaves bool) {
	n, ok := s.Nodes.Get(inst.Node)
	policy, known := s.Policy(inst.Group)
	switch {
	case !ok || !known || !n.Troubled() || !oneOf(n.Health, model.HealthOnline, model.HealthDegraded):
	case !oneOf(n.Intent, model.IntentActive, model.IntentCordoned) || s.Settings.PlaceOnDegraded || s.Unconfirmed:
	case policy.Role == model.RoleSystem || policy.Toleration.NotReady == nil ||
		*policy.Toleration.NotReady == model.Forever:
	case s.Movable(inst) != nil:
	case plant.Is(plant.NotReadyAtOnce):
		return n.Self.Since, true
	default:
		return n.Self.Since.Add(*policy.Toleration.NotReady), true
	}
	return 0, false
}

// mayLeaveTroubled refuses a stop or an eviction request with the cause node_not_ready, if the node's troubles don't
// make the instance leave yet (see Tolerated), or during a hold. Codes: stale, mass_offline_hold.
func (s *State) mayLeaveTroubled(inst *Instance) *model.Error {
	until, leaves := s.Tolerated(inst)
	switch {
	case !leaves || s.Now < until:
		return model.Refuse(model.CodeStale, "instance %s need not leave node %s", inst.ID, inst.Node)
	case s.Hold.Active:
		return model.Refuse(model.CodeHold, "too many nodes are degraded or silent at once: nothing leaves node %s for that",
			inst.Node)
	}
	return nil
}

// mayStopTroubled makes the checks of mayLeaveTroubled. If a replacement must come first, it also refuses the stop
// until the replacement is ready, or in sync if it is a replica.
func (s *State) mayStopTroubled(inst *Instance) *model.Error {
	if refusal := s.mayLeaveTroubled(inst); refusal != nil {
		return refusal
	}
	if _, member := s.MemberOf(inst); member {
		return s.builtElsewhere(inst)
	}
	return s.surged(inst)
}
