package model

import (
	"fmt"
	"strconv"
	"strings"
)

// GateSubject says what a gate is about.
type GateSubject string

// The subjects of gates.
const (
	GateSelf      GateSubject = "self"       // the member's own facts
	GateLedShards GateSubject = "led_shards" // the shards that the member leads, as its own facts say
	GateGroup     GateSubject = "group"      // the members of the group
	GateOld       GateSubject = "old"        // the instance that would be replaced
)

// Gate is one condition of an eviction or a replacement. In a list of gates, all must hold. A gate on an unknown fact
// does not hold.
type Gate struct {
	Subject GateSubject
	Fact    string // the name of a fact if Subject is GateSelf, otherwise a fixed word such as "ready"
	Not     bool   // "!self.FACT": the fact must be known to be false
	AtLeast int    // the N of "followers_responding >= N" and "ready >= N"; otherwise 0
}

// The facts that outspan itself understands.
const (
	FactLeader      = "leader"       // this member leads
	FactLeaderName  = "leader_name"  // which member this member considers to be the leader
	FactIndex       = "index"        // how far this member has got in the log of its own system
	FactInSync      = "in_sync"      // this member's copy is complete
	FactDrained     = "drained"      // this member holds no data any more
	FactLeadsShards = "leads_shards" // this member leads at least one shard
	FactShardsSafe  = "led_shards_in_sync_followers"
)

const gateForms = "[!]self.FACT, led_shards.in_sync_followers, group.leader_responding, group.followers_responding " +
	">= N, group.healthy, group.ready >= N, old.confirmed_stopped"

// ParseGate parses a gate of a job file. Code: invalid, with a hint that lists all forms of gates.
func ParseGate(text string) (Gate, *Error) {
	wrong := func() (Gate, *Error) {
		return Gate{}, Refuse(CodeInvalid, "%q is no gate", text).WithHint("the gates are: %s", gateForms)
	}
	words := strings.Fields(text)
	if len(words) != 1 && len(words) != 3 {
		return wrong()
	}
	name, not := strings.CutPrefix(words[0], "!")
	subject, fact, _ := strings.Cut(name, ".")
	g := Gate{Subject: GateSubject(subject), Fact: fact, Not: not}
	if len(words) == 3 {
		n, err := strconv.Atoi(words[2])
		if err != nil || words[1] != ">=" || n < 1 || n > maxCount {
			return wrong()
		}
		g.AtLeast = n
	}
	if !g.known() {
		return wrong()
	}
	return g, nil
}

func (g Gate) known() bool {
	counted := g.Subject == GateGroup && (g.Fact == "followers_responding" || g.Fact == "ready")
	switch {
	case counted != (g.AtLeast > 0), g.Not && g.Subject != GateSelf:
		return false
	case counted:
		return true
	case g.Subject == GateSelf:
		return ValidFact(g.Fact)
	}
	switch g.String() {
	case "led_shards.in_sync_followers", "group.leader_responding", "group.healthy", "old.confirmed_stopped":
		return true
	}
	return false
}

// String returns the gate as a job file writes it.
func (g Gate) String() string {
	text := string(g.Subject) + "." + g.Fact
	if g.Not {
		text = "!" + text
	}
	if g.AtLeast > 0 {
		text += fmt.Sprintf(" >= %d", g.AtLeast)
	}
	return text
}

// Self reports whether the gate depends only on the member's own facts. The agent checks such gates again right before
// the stop signal.
func (g Gate) Self() bool { return g.Subject == GateSelf || g.Subject == GateLedShards }

// NeedsFacts reports whether the gate depends on facts.
func (g Gate) NeedsFacts() bool {
	return g.Subject != GateOld && (g.Subject != GateGroup || g.Fact != "ready")
}

// Code returns the code for the gate if it does not hold although its facts are known.
func (g Gate) Code() Code {
	switch {
	case g.Subject == GateSelf && g.Fact == FactLeader && g.Not:
		return CodeIsLeader
	case g.Subject == GateSelf && g.Fact == FactDrained && !g.Not:
		return CodeNotDrained
	case g.Subject == GateLedShards, g.Subject == GateSelf && g.Fact == FactLeadsShards && g.Not:
		return CodeNoInSyncFollower
	case g.Subject == GateGroup && g.Fact != "ready":
		return CodeQuorumNotHealthy
	}
	return Gated(g.String())
}

// HoldsFor returns nil if the gate holds for a member with these facts, which may be nil. Otherwise the error's code is
// facts_unknown if a fact is missing, or else the result of Code. A gate that is not about the member's own facts
// always holds here, because an agent can't evaluate it.
func (g Gate) HoldsFor(facts map[string]string) *Error {
	switch g.Subject {
	case GateSelf:
		return g.fact(facts, g.Fact, !g.Not)
	case GateLedShards:
		if facts[FactLeadsShards] == "false" {
			return nil // the member leads no shard
		}
		return g.fact(facts, FactShardsSafe, true)
	}
	return nil
}

func (g Gate) fact(facts map[string]string, name string, want bool) *Error {
	value, ok := facts[name]
	switch {
	case !ok:
		return Refuse(CodeFactsUnknown, "%s: the fact %s is not known", g, name)
	case value != strconv.FormatBool(want):
		return Refuse(g.Code(), "%s does not hold: %s is %s", g, name, value)
	}
	return nil
}

// checkGates returns the first mistake in a list of gates. The parameter key is the name of the block that contains the
// list. If replacing is true, gates about the replaced instance are allowed.
func (g *GroupSpec) checkGates(key string, mode Mode, when []string, replacing bool) *Error {
	switch {
	case mode == ModeWhen && len(when) == 0:
		return RefuseAt(KeyPath(key, "mode"), "%s.mode is \"when\" and there are no gates", key).
			WithHint("give %s.when a list of gates, such as [\"!self.leader\"]", key)
	case mode != ModeWhen && len(when) > 0:
		return RefuseAt(KeyPath(key, "when"), "%s.when has gates and the mode is %q", key, mode).
			WithHint("leave the mode out, or set it to \"when\"")
	}
	for _, text := range when {
		gate, refusal := ParseGate(text)
		switch {
		case refusal != nil:
			refusal.Message = key + ".when: " + refusal.Message
			return refusal.at(key, "when")
		case gate.Subject == GateOld && !replacing:
			return RefuseAt(KeyPath(key, "when"),
				"%s.when: %q is about the instance that is replaced; it belongs in replacement.when", key, text)
		case g.RoleCheck == nil && gate.NeedsFacts() && !gate.onOwnReady():
			return noFacts(key, text)
		}
	}
	return nil
}

func noFacts(key, text string) *Error {
	return RefuseAt(KeyPath(key, "when"), "%s.when: %q rests on facts, and the group reports none", key, text).
		WithHint("add a role_check block, which asks each instance for them")
}

// onOwnReady reports whether the gate is about a fact of the member that is named "ready". This is not the same as
// being ready.
func (g Gate) onOwnReady() bool { return g.Subject == GateSelf && g.Fact == "ready" }

func (g *GroupSpec) checkOwnReady(key string, when []string) *Error {
	for _, text := range when {
		if gate, refusal := ParseGate(text); refusal == nil && gate.onOwnReady() && g.RoleCheck == nil {
			return noFacts(key, text)
		}
	}
	return nil
}

const (
	maxFactName = 48
)

// ValidFact reports whether name is valid for a fact: 1 to 48 characters of a-z, 0-9, '_' and '.'.
func ValidFact(name string) bool {
	return name != "" && len(name) <= maxFactName && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '.')
	})
}
