package fsm

import (
	"strings"

	"github.com/outspan/outspan/model"
)

// Attribute returns the value of an attribute of the node. The name is node.id, node.name, node.label.X or node.attr.X.
// Attribute returns false if the node has no such attribute.
func (n *Node) Attribute(name string) (string, bool) {
	switch {
	case name == "node.id":
		return string(n.ID), true
	case name == "node.name":
		return n.Name, true
	}
	if label, ok := strings.CutPrefix(name, "node.label."); ok {
		v, ok := n.Shape.Labels[label]
		return v, ok
	}
	if attr, ok := strings.CutPrefix(name, "node.attr."); ok {
		v, ok := n.Shape.Attributes[attr]
		return v, ok
	}
	return "", false
}

// Meets reports whether a node satisfies a constraint.
func (n *Node) Meets(c *model.Constraint) bool { return c.Holds(n.Attribute(c.Attribute)) }

// MeetsAll reports whether the node satisfies all constraints.
func (n *Node) MeetsAll(list []model.Constraint) bool {
	for i := range list {
		if !n.Meets(&list[i]) {
			return false
		}
	}
	return true
}
