package reconcile

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

// layout maps each node to its domain for a list of spread attributes. Groups with the same attributes share a layout.
type layout struct {
	domains [][]string // in order; a domain is a list with one value for each attribute
	of      []int      // by position of the node: index of its domain
	sizes   []int      // by index of the domain: number of its nodes
}

func (t *nodeTable) layoutOf(spreads []model.Spread) *layout {
	attributes := make([]string, len(spreads))
	for i := range spreads {
		attributes[i] = spreads[i].Attribute
	}
	key := strings.Join(attributes, "\x00")
	if t.layouts[key] == nil {
		t.layouts[key] = t.newLayout(attributes)
	}
	return t.layouts[key]
}

func (t *nodeTable) newLayout(attributes []string) *layout {
	l := &layout{of: make([]int, len(t.views))}
	keys := make([]string, len(t.views))
	values := make([]string, len(attributes))
	for i, v := range t.views {
		for j, attribute := range attributes {
			values[j], _ = v.node.Attribute(attribute)
		}
		keys[i] = strings.Join(values, "\x00")
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(keys)))
	l.sizes = make([]int, len(distinct))
	for _, key := range distinct {
		l.domains = append(l.domains, strings.Split(key, "\x00"))
	}
	for i, key := range keys {
		l.of[i], _ = slices.BinarySearch(distinct, key)
		l.sizes[l.of[i]]++
	}
	return l
}

// meeting returns, by position of the node, whether the node meets a constraint. The result is cached, because with the
// operator regexp each check compiles the regular expression.
func (t *nodeTable) meeting(c model.Constraint) []bool {
	if known, ok := t.meets[c]; ok {
		return known
	}
	meets := make([]bool, len(t.views))
	for i, v := range t.views {
		meets[i] = v.node.Meets(&c)
	}
	t.meets[c] = meets
	return meets
}

// unmet describes a constraint that no node meets. If the constraint is about a label that no node has, the text says
// so. The result is cached.
func (t *nodeTable) unmet(c model.Constraint) string {
	text, known := t.unmets[c]
	if !known {
		text = "no node has " + constraintText(c)
		if name, unset := t.unsetLabel(c.Attribute); unset {
			text += ", and none has the label " + name
			if near := t.nearestLabel(name); near != "" {
				text += " (did you mean " + near + "?)"
			}
		}
		t.unmets[c] = text
	}
	return text
}

func constraintText(c model.Constraint) string {
	return strings.TrimSpace(c.Attribute + " " + cmp.Or(c.Operator, "=") + " " + c.Value)
}

// unsetLabel returns the label that an attribute names. unset reports whether no node has that label.
func (t *nodeTable) unsetLabel(attribute string) (name string, unset bool) {
	name, isLabel := strings.CutPrefix(attribute, "node.label.")
	return name, isLabel && !slices.ContainsFunc(t.views, func(v *nodeView) bool {
		_, has := v.node.Attribute(attribute)
		return has
	})
}

// nearestLabel returns the node label that a mistyped name probably means, or "". The label may differ from name in at
// most a third of the letters of name, and in at most three.
func (t *nodeTable) nearestLabel(name string) string {
	best, most := "", min(len(name)/3, 3)
	for _, v := range t.views {
		for _, label := range slices.Sorted(maps.Keys(v.node.Shape.Labels)) {
			if d := model.Distance(name, label); d < most || d == most && (best == "" || label < best) {
				best, most = label, d
			}
		}
	}
	return best
}
