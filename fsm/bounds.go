package fsm

import (
	"maps"
	"slices"
	"strings"
)

// Bounds of what rows gather over many entries, so that each fits into a snapshot (maxFrame) and can be read back (maxElements).
const (
	maxLabels      = 64       // of a node; its attributes may be four times as many
	maxLabelValue  = 256      // bytes
	maxAgentText   = 256      // bytes of what an agent says of itself, such as its version
	maxAttributes  = 16 << 10 // bytes of a node's attributes, names included
	maxWarnings    = 32       // of an agent; the rest is dropped
	maxDrainNodes  = 10_000
	maxDrainErrors = 2 << 20  // bytes of last errors in one drain
	maxDrainError  = 4 << 10  // bytes of one
	maxSharers     = 10_000   // groups that name one shared budget
	maxSpecList    = 256      // elements of a list in a group, such as ports or checks
	maxSpecEnv     = 4096     // environment variables of a group
	maxRefusal     = 1 << 10  // bytes of a refusal's message, and of its hint
	maxEvent       = 16 << 10 // bytes of an event; the texts of a longer one are cut
	maxEventText   = 1 << 10
)

// checkLabels refuses more labels than a node may have, or longer ones.
func checkLabels(labels map[string]string) *Error {
	if len(labels) > maxLabels {
		return Refuse(CodeInvalid, "a node has at most %d labels, these are %d", maxLabels, len(labels)).WithHint("remove a label with: outspan node label NODE NAME-")
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		switch {
		case !ValidName(name):
			return Refuse(CodeInvalid, "%q is no label name: use 1 to 63 letters, digits, '-', '_' or '.'", clipText(name, 100))
		case len(labels[name]) > maxLabelValue:
			return Refuse(CodeInvalid, "label %s has a value of %d bytes, at most %d are allowed", name, len(labels[name]), maxLabelValue)
		}
	}
	return nil
}

// CheckAgentLabels refuses labels that an agent may not have in its configuration. Code: invalid.
func CheckAgentLabels(labels map[string]string) *Error {
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if strings.HasPrefix(name, OperatorLabel) {
			return Refuse(CodeInvalid, "an agent may not set the label %s: labels that begin with %q are set by operators alone", name, OperatorLabel).
				WithHint("take it out of the agent's configuration, and set it with: outspan node label NODE %s=%s", name, clipText(labels[name], 100))
		}
	}
	return checkLabels(labels)
}

// checkBounds refuses a registration that is too large, and cuts its warnings.
func (c *NodeRegister) checkBounds() *Error {
	if refusal := CheckAgentLabels(c.Shape.Labels); refusal != nil {
		return refusal
	}
	if len(c.Shape.Attributes) > 4*maxLabels {
		return Refuse(CodeInvalid, "node %s has %d attributes, at most %d are allowed", c.Name, len(c.Shape.Attributes), 4*maxLabels)
	}
	size := 0
	for _, name := range sortedKeys(c.Shape.Attributes) {
		if size += len(name) + len(c.Shape.Attributes[name]); size > maxAttributes {
			return Refuse(CodeInvalid, "node %s: its attributes have more than %d bytes", c.Name, maxAttributes)
		}
		if len(name) > maxAgentText || len(c.Shape.Attributes[name]) > maxAgentText {
			return Refuse(CodeInvalid, "node %s: the attribute %s is longer than %d bytes", c.Name, clipText(name, 100), maxAgentText)
		}
	}
	a := &c.Agent
	for _, text := range []string{a.BootID, a.Incarnation, a.Address, a.APIAddress, a.Version, a.Machine, string(a.Key)} {
		if len(text) > maxAgentText {
			return Refuse(CodeInvalid, "node %s: a text of its registration is longer than %d bytes", c.Name, maxAgentText)
		}
	}
	return nil
}

// CutWarnings keeps of an agent's warnings what a node's row has room for.
func CutWarnings(warnings []string) []string {
	kept := slices.Clone(warnings[:min(len(warnings), maxWarnings)])
	for i := range kept {
		kept[i] = clipText(kept[i], maxAgentText)
	}
	return kept
}

// checkBounds refuses lists that would grow beyond a row when their defaults are filled in.
func (g *GroupSpec) checkBounds() *Error {
	for _, list := range [...]struct {
		key       string
		has, most int
	}{
		{"env", len(g.Env), maxSpecEnv}, {"exec.rlimits", len(g.Exec.Rlimits), maxSpecList}, {"ports", len(g.Ports), maxSpecList}, {"volumes", len(g.Volumes), maxSpecList},
		{"services", len(g.Services), maxSpecList}, {"checks", len(g.Checks), maxSpecList}, {"constraints", len(g.Constraints), maxSpecList},
		{"affinities", len(g.Affinities), maxSpecList}, {"spreads", len(g.Spreads), maxSpecList}, {"distinct", len(g.Distinct), maxSpecList},
		{"eviction.when", len(g.Eviction.When), maxSpecList}, {"replacement.when", len(g.Replacement.When), maxSpecList},
	} {
		if list.has > list.most {
			return Refuse(CodeInvalid, "%s has %d elements, at most %d are allowed", list.key, list.has, list.most)
		}
	}
	return nil
}

// lastErrorRoom is how many bytes one node's last error may take in a drain of so many nodes.
func lastErrorRoom(nodes int) int { return min(maxDrainError, maxDrainErrors/max(nodes, 1)) }

// clipped is the refusal with texts that a row of the requests has room for.
func clipped(e *Error) *Error {
	if len(e.Message) <= maxRefusal && len(e.Hint) <= maxRefusal && e.Key == "" {
		return e
	}
	short := *e
	short.Key = "" // a snapshot would not have it
	short.Message, short.Hint = clipText(e.Message, maxRefusal), clipText(e.Hint, maxRefusal)
	return &short
}

// clip cuts the texts of an event.
func (e *Event) clip() {
	e.Before, e.After = clipText(e.Before, maxEventText), clipText(e.After, maxEventText)
	for _, key := range sortedKeys(e.Data) {
		e.Data[key] = clipText(e.Data[key], maxEventText)
	}
}
