package fsm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

// Bounds of the facts of one instance. CleanFacts drops facts that exceed them.
const (
	maxFacts     = 16
	maxFactValue = 64 // bytes
)

// CleanFacts returns a new map of the reported facts that are valid, at most the first 16 by name, or nil if none is. A
// valid fact has a name that model.ValidFact accepts and a value of 1 to 64 printable ASCII characters.
func CleanFacts(facts map[string]string) map[string]string {
	var kept map[string]string
	for _, name := range slices.Sorted(maps.Keys(facts)) {
		if !model.ValidFact(name) || !validValue(facts[name]) || len(kept) >= maxFacts {
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[name] = facts[name]
	}
	return kept
}

func validValue(value string) bool {
	return value != "" && len(value) <= maxFactValue && !strings.ContainsFunc(value, func(r rune) bool {
		return r < ' ' || r > '~'
	})
}

// responds reports whether the facts of an instance can be current: the instance is booting, ready or unready, and its
// node is online. The node's agent must also have sent its inventory since it last registered and since the last
// restore, because older facts may be outdated.
func (s *fleet) responds(inst *Instance) bool {
	n, ok := s.Nodes.Get(inst.Node)
	if !ok || n.Health != model.HealthOnline || n.Return.Recovering || n.Restore.InventoryOwed {
		return false
	}
	switch inst.Status.Observed {
	case model.ObservedBooting, model.ObservedReady, model.ObservedUnready:
		return true
	}
	return false
}

// OwnFacts returns the facts that an instance reports of itself, or nil if none is known: the instance doesn't run, its
// node isn't online, the agent has not sent its inventory yet, or the role check was not answered. The map belongs to a
// row and must not be changed.
func (s *fleet) OwnFacts(inst *Instance) map[string]string {
	if !s.responds(inst) {
		return nil
	}
	return inst.Status.Facts
}

// FactsOf returns the known facts of an instance: its own, or if it has none, those that instances in other slots of
// the group report about its slot (such as "slot.2.leads_shards"), except for facts on which they disagree. The
// returned map may belong to a row and must not be changed.
func (s *State) FactsOf(inst *Instance) map[string]string {
	if own := s.OwnFacts(inst); own != nil {
		return own
	}
	prefix := fmt.Sprintf("slot.%d.", inst.Slot)
	said, disputed := map[string]string{}, map[string]bool{}
	for peer := range s.InstancesOf(inst.Group) {
		if peer.Slot == inst.Slot { // what it says about its own slot is about itself
			continue
		}
		facts := s.OwnFacts(peer)
		for _, full := range sortedKeys(facts) {
			name, about := strings.CutPrefix(full, prefix)
			if !about {
				continue
			}
			value := facts[full]
			if other, twice := said[name]; twice && other != value {
				disputed[name] = true
			}
			said[name] = value
		}
	}
	maps.DeleteFunc(said, func(name, _ string) bool { return disputed[name] })
	return said
}

// FactsRefs lists the nodes on whose facts the gates of an instance may depend, each with its facts' present
// generation.
func (s *State) FactsRefs(inst *Instance) []FactsRef {
	var refs []FactsRef
	for member := range s.InstancesOf(inst.Group) {
		n, ok := s.Nodes.Get(member.Node)
		seen := slices.ContainsFunc(refs, func(r FactsRef) bool { return r.Node == member.Node })
		if ok && !seen && !member.Terminal() && n.Health != model.HealthOffline {
			refs = append(refs, FactsRef{Node: n.ID, Gen: n.FactsGen})
		}
	}
	return refs
}

// freshFacts refuses if a node in refs is gone, or its facts have changed since refs was made. Code: stale.
func (s *State) freshFacts(refs []FactsRef) *model.Error {
	for _, r := range refs {
		n, ok := s.Nodes.Get(r.Node)
		if !ok || n.FactsGen != r.Gen {
			return model.Refuse(model.CodeStale, "the facts of node %s changed since it was decided", r.Node)
		}
	}
	return nil
}

// restoresFacts reports whether a status that an agent repeats brings back the facts that dropFacts removed. If an
// inventory would be too large, the agent sends it without facts. It then repeats each status, now with its facts and
// with the same InstanceStatus.Generation.
func restoresFacts(known, reported model.InstanceStatus) bool {
	return len(known.Facts) == 0 && known.Observed == reported.Observed &&
		oneOf(known.Observed, model.ObservedBooting, model.ObservedReady, model.ObservedUnready) &&
		len(CleanFacts(reported.Facts)) > 0
}

// dropFacts clears the facts of a node's instances. It is called when the agent registers, because the agent then
// reports all facts again.
func (s *State) dropFacts(id model.NodeID) {
	var spoke []*Instance
	for inst := range s.InstancesOn(id) {
		if len(inst.Status.Facts) > 0 {
			spoke = append(spoke, inst)
		}
	}
	for _, inst := range spoke {
		next := *inst
		next.Status.Facts = nil
		s.setInstance(inst, &next)
	}
}

// GateChoice says which gates of a list are checked.
type GateChoice int

// The values of GateChoice.
const (
	EveryGate GateChoice = iota
	NotOfSelf            // all except the gates on the instance's own facts, which a hook may still change
)

// CheckGates returns nil if every chosen gate of the list holds for an instance. If gates certainly do not hold, it
// returns the refusal of the first of these. Otherwise it returns facts_unknown for the last gate whose facts are
// unknown.
func (s *State) CheckGates(inst *Instance, when []string, choice GateChoice) *model.Error {
	var unknown *model.Error
	for _, text := range when {
		gate, refusal := model.ParseGate(text)
		if refusal == nil && !(choice == NotOfSelf && gate.Self()) {
			refusal = s.checkGate(inst, gate)
		}
		switch {
		case refusal == nil:
		case refusal.Code == model.CodeFactsUnknown:
			unknown = refusal
		default:
			return refusal
		}
	}
	return unknown
}

func (s *State) checkGate(inst *Instance, gate model.Gate) *model.Error {
	switch {
	case gate.Self():
		refusal := gate.HoldsFor(s.FactsOf(inst))
		if refusal != nil {
			refusal.Message = fmt.Sprintf("instance %s: %s", inst.ID, refusal.Message)
			refusal.Hint = gateHint(gate, inst)
		}
		return refusal
	case gate.Subject == model.GateOld:
		if inst.Status.Observed == model.ObservedStopped {
			return nil
		}
		return model.Refuse(gate.Code(), "instance %s is not known to have stopped", inst.ID).
			WithHint("bring its node back, or if it is gone: outspan node confirm-dead %s", inst.Node)
	case gate.Fact == "ready":
		if g, ok := s.Groups.Get(inst.Group); ok && g.Ready >= gate.AtLeast {
			return nil
		}
		return model.Refuse(gate.Code(), "%s does not hold for %s", gate, inst.Group).
			WithHint("it holds when more of its instances are ready")
	}
	return s.checkQuorum(inst, gate)
}

// gateHint says how to make a gate on the instance's own facts hold.
func gateHint(g model.Gate, inst *Instance) string {
	switch g.Code() {
	case model.CodeIsLeader:
		return "let another member lead, by hand or with a before_stop hook that resigns"
	case model.CodeNotDrained:
		return "clean it out, by hand or with a before_stop hook that does"
	case model.CodeNoInSyncFollower:
		return "wait until a follower of each of its shards is in sync, or move them"
	}
	return "it holds once the role check of " + string(inst.ID) + " says so"
}

// memberCounts contains counts of the instances of a group that should run. The fields other than wanted and silent
// count an instance only if it is ready and reports whether it leads.
type memberCounts struct {
	wanted, ready   int // wanted is the number of all instances that should run
	leaders         int
	followers       int // without the instance that the gate is checked for
	silent          int // instances whose facts can be current (see responds), but that don't report whether they lead
	names, indexes  map[string]int
	named, numbered int // instances that report a leader's name; instances that report an index
}

func (s *State) countMembers(inst *Instance) memberCounts {
	c := memberCounts{names: map[string]int{}, indexes: map[string]int{}}
	for m := range s.InstancesOf(inst.Group) {
		if m.Desired != model.DesiredRunning {
			continue
		}
		c.wanted++
		facts := s.OwnFacts(m)
		if _, told := facts[model.FactLeader]; !told {
			c.silent += count(s.responds(m))
			continue
		}
		if !m.Ready() {
			continue
		}
		c.ready++
		leads, other := facts[model.FactLeader] == "true", m.ID != inst.ID
		c.leaders += count(leads)
		c.followers += count(!leads && other)
		if name, ok := facts[model.FactLeaderName]; ok {
			c.names[name]++
			c.named++
		}
		if index, ok := facts[model.FactIndex]; ok {
			c.indexes[index]++
			c.numbered++
		}
	}
	return c
}

// checkQuorum checks a gate on the members of an instance's group. If the gate does not hold, and members that run
// don't report whether they lead, the code is facts_unknown. Members that are down are only counted as missing.
func (s *State) checkQuorum(inst *Instance, gate model.Gate) *model.Error {
	c := s.countMembers(inst)
	g, ok := s.Groups.Get(inst.Group)
	holds, why := false, ""
	switch gate.Fact {
	case "leader_responding":
		holds, why = c.leaders > 0, "no member that is ready says that it leads"
	case "followers_responding":
		holds, why = c.followers >= gate.AtLeast,
			fmt.Sprintf("%d other followers respond, %d are needed", c.followers, gate.AtLeast)
	case "healthy":
		why = c.sick(ok, g)
		holds = why == ""
	}
	switch {
	case holds:
		return nil
	case c.silent > 0:
		return model.Refuse(model.CodeFactsUnknown, "%s: %s; of %d members of %s it is not known what they are",
			gate, why, c.silent, inst.Group).
			WithHint("look at their role checks")
	}
	return model.Refuse(gate.Code(), "%s does not hold for %s: %s", gate, inst.Group, why).
		WithHint("it holds when the group is whole again")
}

// sick returns why a group is not healthy, or "". In a healthy group, all members are ready and report whether they
// lead, and exactly one leads. If any member names a leader, all name the same one. If any reports an index, all report
// the same one. known is false if the group has no row.
func (c *memberCounts) sick(known bool, g *Group) string {
	switch {
	case !known || c.ready < c.wanted || c.ready < g.Count:
		return fmt.Sprintf("%d members are ready and answer, %d should", c.ready, max(c.wanted, count(known)*groupCount(g)))
	case c.leaders != 1:
		return fmt.Sprintf("%d members say that they lead", c.leaders)
	case len(c.names) > 1 || c.named > 0 && c.named < c.ready:
		return "its members do not agree on who leads"
	case len(c.indexes) > 1 || c.numbered > 0 && c.numbered < c.ready:
		return "its members are not equally far"
	}
	return ""
}

func groupCount(g *Group) int {
	if g == nil {
		return 0
	}
	return g.Count
}
