package fsm

import (
	"slices"

	"github.com/outspan/outspan/model"
)

// Bounds of the contents of a row, so that the row fits into a snapshot (maxFrame) and can be read back (maxElements).
const (
	maxAgentText   = 256      // bytes of one string that an agent reports about itself
	maxAttributes  = 16 << 10 // bytes of a node's attributes, names included
	maxWarnings    = 32       // warnings of an agent; later ones are dropped
	maxDrainNodes  = 10_000
	maxDrainErrors = 2 << 20  // bytes of all last errors of one drain
	maxDrainError  = 4 << 10  // bytes of the last error of one node
	maxSharers     = 10_000   // groups that name one shared budget
	maxRefusal     = 1 << 10  // bytes of a refusal's message, and also of its hint
	maxEvent       = 16 << 10 // bytes of an event; in a longer event, each text is cut to maxEventText bytes
	maxEventText   = 1 << 10
)

// checkBounds refuses a registration whose labels, attributes or other strings are too many or too long.
func (c *NodeRegister) checkBounds() *model.Error {
	if refusal := model.CheckAgentLabels(c.Shape.Labels); refusal != nil {
		return refusal
	}
	if len(c.Shape.Attributes) > 4*model.MaxLabels {
		return model.Refuse(model.CodeInvalid, "node %s has %d attributes, at most %d are allowed", c.Name,
			len(c.Shape.Attributes), 4*model.MaxLabels)
	}
	size := 0
	for _, name := range sortedKeys(c.Shape.Attributes) {
		if size += len(name) + len(c.Shape.Attributes[name]); size > maxAttributes {
			return model.Refuse(model.CodeInvalid, "node %s: its attributes have more than %d bytes", c.Name, maxAttributes)
		}
		if len(name) > maxAgentText || len(c.Shape.Attributes[name]) > maxAgentText {
			return model.Refuse(model.CodeInvalid, "node %s: the attribute %s is longer than %d bytes", c.Name,
				model.ClipText(name, 100), maxAgentText)
		}
	}
	a := &c.Agent
	for _, text := range []string{a.BootID, a.Incarnation, a.Address, a.APIAddress, a.Version, a.Machine, string(a.Key)} {
		if len(text) > maxAgentText {
			return model.Refuse(model.CodeInvalid, "node %s: a text of its registration is longer than %d bytes",
				c.Name, maxAgentText)
		}
	}
	return nil
}

// CutWarnings returns the first maxWarnings warnings of an agent, each cut to maxAgentText bytes.
func CutWarnings(warnings []string) []string {
	kept := slices.Clone(warnings[:min(len(warnings), maxWarnings)])
	for i := range kept {
		kept[i] = model.ClipText(kept[i], maxAgentText)
	}
	return kept
}

// lastErrorRoom returns how many bytes the last error of each node may take in a drain of this many nodes.
func lastErrorRoom(nodes int) int { return min(maxDrainError, maxDrainErrors/max(nodes, 1)) }

// clipped cuts the message and the hint of a refusal to maxRefusal bytes each, and removes Key.
func clipped(e *model.Error) *model.Error {
	if len(e.Message) <= maxRefusal && len(e.Hint) <= maxRefusal && e.Key == "" {
		return e
	}
	short := *e
	short.Key = "" // snapshots do not contain Key, so a state must not either
	short.Message, short.Hint = model.ClipText(e.Message, maxRefusal), model.ClipText(e.Hint, maxRefusal)
	return &short
}

// clip cuts each text of an event to maxEventText bytes.
func (e *Event) clip() {
	e.Before, e.After = model.ClipText(e.Before, maxEventText), model.ClipText(e.After, maxEventText)
	for _, key := range sortedKeys(e.Data) {
		e.Data[key] = model.ClipText(e.Data[key], maxEventText)
	}
}
