package fsm

import (
	"testing"

	"github.com/outspan/outspan/model"
)

// The operators <, <=, > and >= compare two numbers as numbers, and anything else as text. A missing attribute
// satisfies only !=, not_in and is_not_set.
func TestConstraintMatches(t *testing.T) {
	n := &Node{ID: "n1", Name: "one"}
	n.Shape.Labels = map[string]string{"rack": "r9", "empty": ""}
	n.Shape.Attributes = map[string]string{"cores": "9"}
	tests := []struct {
		attribute, operator, value string
		want                       bool
	}{
		{"node.id", "=", "n1", true}, {"node.id", "", "n1", true}, {"node.id", "=", "n2", false},
		{"node.name", "=", "one", true}, {"node.name", "=", "n1", false}, {"node.rack", "=", "", false},
		{"node.label.rack", "!=", "r9", false}, {"node.label.rack", "!=", "r1", true}, {"node.label.x", "!=", "r1", true},
		{"node.label.x", "=", "", false}, {"node.label.empty", "=", "", true},
		{"node.label.empty", "is_set", "", true}, {"node.label.x", "is_set", "", false},
		{"node.label.empty", "is_not_set", "", false}, {"node.label.x", "is_not_set", "", true},
		{"node.label.rack", "in", "r1, r9", true}, {"node.label.rack", "in", "r1,r99", false},
		{"node.label.x", "in", "r9", false},
		{"node.label.rack", "not_in", "r1, r9", false}, {"node.label.rack", "not_in", "r1", true},
		{"node.label.x", "not_in", "r9", true},
		{"node.label.rack", "regexp", "^r[0-9]$", true}, {"node.label.rack", "regexp", "^x", false},
		{"node.label.rack", "regexp", "(", false}, {"node.label.x", "regexp", ".*", false},
		{"node.attr.cores", "<", "10", true}, {"node.attr.cores", "<", "9", false}, {"node.attr.cores", "<", "9.5", true},
		{"node.attr.cores", "<=", "9", true}, {"node.attr.cores", "<=", "8", false}, {"node.attr.cores", "<=", "10", true},
		{"node.attr.cores", ">", "8", true}, {"node.attr.cores", ">", "9", false}, {"node.attr.cores", ">", "10", false},
		{"node.attr.cores", ">=", "9", true}, {"node.attr.cores", ">=", "10", false}, {"node.attr.cores", ">=", "8", true},
		{"node.label.rack", "<", "r99", true}, {"node.label.rack", "<", "r10", false}, {"node.attr.cores", ">", "x", false},
		{"node.attr.x", "<", "10", false},
	}
	for _, tt := range tests {
		c := model.Constraint{Attribute: tt.attribute, Operator: tt.operator, Value: tt.value}
		if got := n.Meets(&c); got != tt.want {
			t.Errorf("%s %s %q: %v, want %v", tt.attribute, tt.operator, tt.value, got, tt.want)
		}
	}
}
