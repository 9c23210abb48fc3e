package model

import (
	"maps"
	"slices"
	"strings"
)

// Bounds of strings and lists. They keep a row small enough to fit into a snapshot and to be read back.
const (
	MaxLabels     = 64   // labels of a node; the limit of attributes is four times as high
	maxLabelValue = 256  // bytes
	maxSpecList   = 256  // elements of a list in a group, for example ports or checks
	maxSpecEnv    = 4096 // environment variables of a group
)

// CheckLabels refuses more than MaxLabels labels, invalid names, and values that are too long. Code: invalid.
func CheckLabels(labels map[string]string) *Error {
	if len(labels) > MaxLabels {
		return Refuse(CodeInvalid, "a node has at most %d labels, these are %d", MaxLabels, len(labels)).
			WithHint("remove a label with: outspan node label NODE NAME-")
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		switch {
		case !ValidName(name):
			return Refuse(CodeInvalid, "%q is no label name: use 1 to 63 letters, digits, '-', '_' or '.'", ClipText(name, 100))
		case len(labels[name]) > maxLabelValue:
			return Refuse(CodeInvalid, "label %s has a value of %d bytes, at most %d are allowed", name,
				len(labels[name]), maxLabelValue)
		}
	}
	return nil
}

// CheckAgentLabels checks the labels in an agent's configuration. It refuses labels that only operators may set, and
// everything that CheckLabels refuses. Code: invalid.
func CheckAgentLabels(labels map[string]string) *Error {
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if strings.HasPrefix(name, OperatorLabel) {
			return Refuse(CodeInvalid, "an agent may not set the label %s: labels that begin with %q are set by operators alone",
				name, OperatorLabel).
				WithHint("take it out of the agent's configuration, and set it with: outspan node label NODE %s=%s", name,
					ClipText(labels[name], 100))
		}
	}
	return CheckLabels(labels)
}

// checkBounds refuses lists that are too long for a row of the state.
func (g *GroupSpec) checkBounds() *Error {
	for _, list := range [...]struct {
		key       string
		has, most int
	}{
		{"env", len(g.Env), maxSpecEnv}, {"exec.rlimits", len(g.Exec.Rlimits), maxSpecList},
		{"ports", len(g.Ports), maxSpecList}, {"volumes", len(g.Volumes), maxSpecList},
		{"services", len(g.Services), maxSpecList}, {"checks", len(g.Checks), maxSpecList},
		{"constraints", len(g.Constraints), maxSpecList},
		{"affinities", len(g.Affinities), maxSpecList}, {"spreads", len(g.Spreads), maxSpecList},
		{"distinct", len(g.Distinct), maxSpecList},
		{"eviction.when", len(g.Eviction.When), maxSpecList}, {"replacement.when", len(g.Replacement.When), maxSpecList},
	} {
		if list.has > list.most {
			return Refuse(CodeInvalid, "%s has %d elements, at most %d are allowed", list.key, list.has, list.most)
		}
	}
	return nil
}

// maxShared limits how many shared budgets a group may name.
const maxShared = 8
