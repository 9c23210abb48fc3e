package fsm

import (
	"fmt"
	"iter"
	"slices"

	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

// ParseDrainPolicy returns the policy with this name or alias. It returns false if there is none.
func ParseDrainPolicy(text string) (model.DrainPolicy, bool) {
	if text == model.PolicyEvictLastAlias {
		return model.PolicyEvictLast, true
	}
	return model.DrainPolicy(text), slices.Contains(model.DrainPolicies(), text)
}

// Member is a replica of a replicated group: a copy of the group's data on one node. Either an instance uses the copy,
// or the copy was kept when its instance stopped.
type Member struct {
	Group    model.GroupID
	Slot     int
	Node     model.NodeID
	Volume   model.VolumeID // the copy of the group's first replicated volume
	Held     bool           // the copy was in sync at least once, so it has data
	Instance *Instance      // the instance that uses the copy and is not confirmed stopped; nil if no instance does
}

// running reports whether a program uses the copy.
func (m *Member) running() bool {
	return m.Instance != nil && oneOf(m.Instance.Status.Observed, model.ObservedBooting, model.ObservedReady,
		model.ObservedUnready, model.ObservedDraining)
}

// MemberOf returns the member that an instance belongs to. It returns false if the instance has no replicated volume.
func (s *State) MemberOf(inst *Instance) (Member, bool) {
	spec, ok := s.Spec(inst.Group, inst.Version)
	if !ok || !inst.Links.HasVolumes || !spec.Replicated() {
		return Member{}, false
	}
	i := slices.IndexFunc(spec.Volumes, func(v model.VolumeSpec) bool { return v.Kind == model.VolumeReplicated })
	m := Member{Group: inst.Group, Slot: inst.Slot, Node: inst.Node,
		Volume: NewCopyID(inst.Group, inst.Slot, spec.Volumes[i].Name, inst.Node)}
	if inst.holdsClaims() {
		m.Instance = inst
	}
	row, ok := s.Volumes.Get(m.Volume)
	m.Held = ok && row.Held
	return m, true
}

// MembersOn iterates over the members on a node, in order of group and slot.
func (s *State) MembersOn(node model.NodeID) iter.Seq[Member] {
	return func(yield func(Member) bool) {
		prefix, before := string(node)+"/", Member{}
		for key, id := range s.copiesOn.From(prefix) {
			if len(key) < len(prefix) || key[:len(prefix)] != prefix {
				return
			}
			v, ok := s.Volumes.Get(id)
			if !ok || v.Group == before.Group && v.Slot == before.Slot {
				continue
			}
			before = s.memberAt(v)
			if !yield(before) {
				return
			}
		}
	}
}

func (s *instances) memberAt(v *Volume) Member {
	m := Member{Group: v.Group, Slot: v.Slot, Node: v.Home, Volume: v.ID, Held: v.Held}
	for inst := range s.InstancesInSlot(v.Group, v.Slot) {
		if inst.Node == v.Home && inst.holdsClaims() {
			m.Instance = inst
		}
	}
	return m
}

// InSync reports whether an instance serves and its role check says now that its copy is complete. An unknown answer
// counts as not in sync.
func (s *fleet) InSync(inst *Instance) bool {
	return inst.Ready() && s.OwnFacts(inst)[model.FactInSync] == "true"
}

// Protected reports whether the instance of a member has a reliable copy: it is in sync now, it is not to be evicted,
// and its node is active, online and without troubles. Together with Last, this rule decides what is evicted, what
// blocks a drain, and what Apply refuses to stop (L16).
func (s *fleet) Protected(inst *Instance) bool {
	n, known := s.Nodes.Get(inst.Node)
	if plant.Is(plant.StaleLastCopy) {
		return known && inst.Status.Facts[model.FactInSync] == "true"
	}
	return known && n.Intent == model.IntentActive && n.Health == model.HealthOnline && !n.Troubled() &&
		!inst.Eviction.Requested && s.InSync(inst)
}

// Last reports whether a member has no protected peer of its group on another node. The replacement of the member
// doesn't count as a peer.
func (s *State) Last(m Member) bool {
	var heir model.InstanceID
	if m.Instance != nil {
		heir = m.Instance.Links.ReplacedBy
	}
	return s.last(m.Group, m.Node, heir)
}

func (s *State) last(group model.GroupID, node model.NodeID, heir model.InstanceID) bool {
	for peer := range s.InstancesOf(group) {
		if peer.Node != node && peer.ID != heir && s.Protected(peer) {
			return false
		}
	}
	return true
}

// Marked reports whether a policy wants the member evicted. The parameter last is the result of Last.
func (m Member) Marked(p model.DrainPolicy, last bool) bool {
	return p == model.PolicyEvictAll || p == model.PolicyEvictLast && m.Held && last
}

// Blocks reports whether the member keeps a drain from ending under a policy. The parameter last is the result of Last.
func (m Member) Blocks(p model.DrainPolicy, last bool) bool {
	switch p {
	case model.PolicyEvictAll:
		return true
	case model.PolicyEvictLast, model.PolicyBlockLast:
		return m.Held && last
	case model.PolicyAllowStopped:
		return m.Held && last && m.running()
	}
	return false
}

// MemberBlocks returns why a member keeps a drain from ending under a policy, or nil. Codes: replica_evicting if the
// policy wants the member evicted, replica_last_healthy otherwise.
func (s *State) MemberBlocks(m Member, p model.DrainPolicy) *model.Error {
	last := s.Last(m)
	switch {
	case !m.Blocks(p, last):
		return nil
	case m.Marked(p, last):
		return model.Refuse(model.CodeReplicaEvicting, "%s stays until its copy is in sync elsewhere", m)
	}
	return model.Refuse(model.CodeLastHealthy, "%s is the last one of %s that can be relied on", m, m.Group)
}

// String names a member.
func (m Member) String() string {
	if m.Instance != nil {
		return "the copy of instance " + string(m.Instance.ID)
	}
	return fmt.Sprintf("the kept copy of slot %d of %s", m.Slot, m.Group)
}

// PolicyFor returns the policy that applies to a drain: always-allow if the drain has force, otherwise the drain's own
// policy, or the setting node_drain_policy if the drain has none.
func (s *rules) PolicyFor(d *Drain) model.DrainPolicy {
	if d.Options.Force {
		return model.PolicyAlwaysAllow
	}
	if p, ok := ParseDrainPolicy(d.Options.Policy); ok {
		return p
	}
	p, _ := ParseDrainPolicy(s.Settings.NodeDrainPolicy)
	return p
}

// PolicyOn returns the policy for a node, the name in which the policy acts (by), and whether it acts now. While a
// drain of the node runs, the drain's policy applies, and acts once the node's turn has come. Otherwise the setting
// node_drain_policy applies, and acts on a cordoned node if cordons trigger evictions (L7).
func (s *State) PolicyOn(n *Node) (p model.DrainPolicy, by string, acts bool) {
	if d, running := s.RunningDrain(n); running {
		part, _ := d.Node(n.ID)
		return s.PolicyFor(d), string(d.ID), part.Turn
	}
	p, _ = ParseDrainPolicy(s.Settings.NodeDrainPolicy)
	return p, ByPolicy, s.Settings.EvictOn == model.EvictOnCordon && n.Intent == model.IntentCordoned
}

// PolicyMarks reports whether the policy of an instance's node wants the instance evicted, and in whose name (by). A
// policy evicts only members that should run, and does not act on an offline or unknown node.
func (s *State) PolicyMarks(inst *Instance) (by string, marks bool) {
	m, ok := s.MemberOf(inst)
	n, known := s.Nodes.Get(inst.Node)
	if !ok || !known || n.Health == model.HealthOffline || inst.Desired != model.DesiredRunning {
		return "", false
	}
	p, by, acts := s.PolicyOn(n)
	return by, acts && m.Marked(p, s.Last(m))
}

// AutoEvicting reports whether the policy, and not a person, has requested the eviction of a member on the node (L8).
func (s *State) AutoEvicting(node model.NodeID) bool {
	for m := range s.MembersOn(node) {
		if m.Instance != nil && m.Instance.Eviction.Requested && m.Instance.Eviction.Automatic {
			return true
		}
	}
	return false
}

// mayLoseCopy refuses to stop a running member that has the last reliable copy, whatever the cause. It allows the stop
// if the replacement is protected, if the policy of the drain does not protect the copy, or if a person decided the
// stop: a bypass, a drain with force, a stop of the job, or a count of 0. Code: last_copy.
func (s *State) mayLoseCopy(inst *Instance, c *InstanceStop) *model.Error {
	m, ok := s.MemberOf(inst)
	if !ok || !m.Held || !m.running() || c.Cause == model.CauseJobStopped || c.Bypass && c.Cause == model.CauseUser {
		return nil
	}
	if g, ok := s.Groups.Get(inst.Group); !ok || g.Count == 0 {
		return nil
	}
	last := s.Last(m)
	if c.Cause == model.CauseNodeDraining || c.Cause == model.CauseDrainTimeout {
		if d, ok := s.Drains.Get(model.DrainID(c.By)); ok {
			if p := s.PolicyFor(d); !m.Marked(p, last) && !m.Blocks(p, last) {
				return nil
			}
		}
	}
	if heir, ok := s.Successor(inst); !last || ok && s.Protected(heir) {
		return nil
	}
	return model.Refuse(model.CodeLastCopy, "instance %s holds the last copy of %s that can be relied on",
		inst.ID, inst.Group).
		WithHint("it can go when another member of %s is in sync on another node that isn't drained", inst.Group)
}

// mayDrainMember checks whether a drain may stop a member. If the policy wants the member evicted, its copy must be in
// sync elsewhere first, unless the drain accepts downtime of the group. Any other member may be stopped at once. Code:
// replica_evicting.
func (s *State) mayDrainMember(inst *Instance, m Member, d *Drain) *model.Error {
	if !m.Marked(s.PolicyFor(d), s.Last(m)) || d.Options.AcceptsDowntime(inst.Group) {
		return nil
	}
	return s.builtElsewhere(inst)
}

// mayPolicyStop checks whether the policy that a cordon triggered may stop an instance. The policy must still want the
// instance evicted, and its copy must be in sync elsewhere. Codes: stale, replica_evicting.
func (s *State) mayPolicyStop(inst *Instance) *model.Error {
	if by, marks := s.PolicyMarks(inst); !marks || by != ByPolicy || !inst.Eviction.Requested {
		return model.Refuse(model.CodeStale, "no policy asks for the eviction of instance %s", inst.ID)
	}
	return s.builtElsewhere(inst)
}

// builtElsewhere refuses to stop a member before its replacement has a copy that is in sync. A member whose slot may
// never have two instances is not refused, because it must stop first. Code: replica_evicting.
func (s *State) builtElsewhere(inst *Instance) *model.Error {
	policy, ok := s.Policy(inst.Group)
	if next, has := s.Successor(inst); !ok || policy.OneHolder() || has && s.covers(next) {
		return nil
	}
	return model.Refuse(model.CodeReplicaEvicting, "the copy of instance %s is not in sync elsewhere yet", inst.ID)
}

// covers reports whether a replacement has reached the state that a surge of its group waits for. A replica must be in
// sync. If the replaced instance never held data, the replica need only be ready.
func (s *State) covers(next *Instance) bool {
	policy, ok := s.Policy(next.Group)
	if !ok || !policy.Replicated() {
		return next.covers(surgeWait(policy))
	}
	old, ok := s.Instances.Get(next.Links.Replaces)
	if ok {
		if m, member := s.MemberOf(old); member && !m.Held {
			return next.Ready()
		}
	}
	return s.InSync(next)
}

// Covers reports whether a replacement has reached the state that a surge of its group waits for. See covers.
func (s *State) Covers(next *Instance) bool { return s.covers(next) }

// surgeWait returns what a surge waits for. It returns WaitReady if g is nil.
func surgeWait(g *model.GroupSpec) model.SurgeWait {
	if g == nil {
		return model.WaitReady
	}
	return g.Eviction.SurgeWait
}

// keepsApart refuses to place a member on a node where another member of its group, of whatever slot, has not stopped.
// It also refuses if the node reports a member of the group that a restore has lost from the state. Each copy needs its
// own machine, and two programs must never share a directory. Code: anti_affinity_unsatisfied.
func (s *State) keepsApart(c *InstancePlace, spec *model.GroupSpec) *model.Error {
	if !spec.Replicated() {
		return nil
	}
	for inst := range s.InstancesOn(c.Node) {
		if inst.Group != c.Group || !inst.holdsClaims() {
			continue
		}
		if _, member := s.MemberOf(inst); member {
			return model.Refuse(model.CodeAntiAffinity, "node %s has a copy of %s already: instance %s",
				c.Node, c.Group, inst.ID)
		}
	}
	if id, ok := s.UnknownMember(c.Group, c.Node); ok && id != c.ID {
		return model.Refuse(model.CodeAntiAffinity,
			"node %s has a copy of %s already: instance %s, which the restored state does not know", c.Node, c.Group, id)
	}
	return nil
}

// UnknownMember finds an instance of a group that a node reports, that keeps its slot, and that a restore has lost from
// the state.
func (s *State) UnknownMember(group model.GroupID, node model.NodeID) (model.InstanceID, bool) {
	n, ok := s.Nodes.Get(node)
	if !ok {
		return "", false
	}
	i := slices.IndexFunc(n.Restore.Unknown, func(h model.Holding) bool { return h.Group == group && s.Keeps(h) })
	if i < 0 {
		return "", false
	}
	return n.Restore.Unknown[i].ID, true
}
