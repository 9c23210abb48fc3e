package fsm

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

// Bounds of the facts of one member; the rest is left out.
const (
	maxFacts     = 16
	maxFactValue = 64
)

// CleanFacts returns the reported facts that are kept: at most 16, with names of a-z, 0-9, '_' and '.', and values of
// at most 64 printable bytes. It returns nil if none is left, and does not change its argument.
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

// responds reports whether an instance can be asked: it runs, and its node is online. Its facts hold only as long as it
// responds. After a restore it does not respond until its agent has sent its inventory, because the facts are older.
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

// OwnFacts returns the facts that an instance reports of itself. It returns nil if nothing is known: the instance
// doesn't run, its node isn't online, or its role check was not answered.
func (s *fleet) OwnFacts(inst *Instance) map[string]string {
	if !s.responds(inst) {
		return nil
	}
	return inst.Status.Facts
}

// FactsOf returns what is known of an instance: its own facts, or if it has none, what its peers report of its slot
// ("slot.2.leads_shards"). A fact on which peers disagree is left out. The returned map may belong to a row and must
// not be changed.
func (s *State) FactsOf(inst *Instance) map[string]string {
	if own := s.OwnFacts(inst); own != nil {
		return own
	}
	prefix := fmt.Sprintf("slot.%d.", inst.Slot)
	said, disputed := map[string]string{}, map[string]bool{}
	for peer := range s.InstancesOf(inst.Group) {
		if peer.ID == inst.ID || peer.Slot == inst.Slot { // an instance that takes over the slot reports its own facts
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

// FactsRefs lists the nodes whose facts the gates of an instance may depend on, with the generation of those facts in
// the state.
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

// freshFacts refuses a command if the facts of a node that it depends on have changed.
func (s *State) freshFacts(refs []FactsRef) *model.Error {
	for _, r := range refs {
		n, ok := s.Nodes.Get(r.Node)
		if !ok || n.FactsGen != r.Gen {
			return model.Refuse(model.CodeStale, "the facts of node %s changed since it was decided", r.Node)
		}
	}
	return nil
}

// restoresFacts reports whether a status only brings back the facts that a registration dropped. The agent was running
// all the time, so the status has the same generation as the known one.
func restoresFacts(known, reported model.InstanceStatus) bool {
	return len(known.Facts) == 0 && len(reported.Facts) > 0 && known.Observed == reported.Observed &&
		oneOf(known.Observed, model.ObservedBooting, model.ObservedReady, model.ObservedUnready)
}

// dropFacts forgets the facts of a node's instances, because its agent reports them again.
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

// The choices.
const (
	EveryGate GateChoice = iota
	NotOfSelf            // leave out those of the member itself, because a hook may change what they check
)

// CheckGates returns nil if every gate of a list holds for an instance. Otherwise it returns why the first one fails; a
// gate that certainly fails comes before one whose facts are unknown (facts_unknown).
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

// gateHint says what makes a gate of the member itself hold.
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

// memberCounts counts the members of a group by their facts.
type memberCounts struct {
	wanted, ready   int // wanted: desired running; ready: those of them that are ready and report facts
	leaders         int
	followers       int // other than the instance that the gate is checked for
	silent          int // running on an online node, with unknown facts
	names, indexes  map[string]int
	named, numbered int
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

// checkQuorum checks the gates about the other members. Members that run without known facts make the answer unknown if
// the gate fails; members that are down count as not responding.
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

// sick says why a group is not healthy, or returns "". A healthy group has one leader on which all agree, equal
// indexes, and no member missing.
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
