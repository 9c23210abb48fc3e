package model

import (
	"strings"
	"testing"
)

func TestConstraintIsRefused(t *testing.T) {
	tests := []struct{ attribute, operator, value, says string }{
		{"node.id", "=", "x", ""}, {"node.name", "", "x", ""}, {"node.label.a", "!=", "x", ""},
		{"node.attr.a", "is_set", "", ""},
		{"node.id", "not_in", "x", ""}, {"node.id", "regexp", strings.Repeat("a", 256), ""},
		{"node.id", "regexp", strings.Repeat("a", 257), "no regular expression of at most 256"},
		{"node.id", "regexp", "(", "no regular expression"}, {"node.id", "~", "x", "operator \"~\" is unknown"},
		{"node.label.", "=", "x", "attribute \"node.label.\" is unknown"}, {"node.attr.", "=", "x", "is unknown"},
		{"rack", "=", "x", "attribute \"rack\" is unknown"},
	}
	for _, tt := range tests {
		c := Constraint{Attribute: tt.attribute, Operator: tt.operator, Value: tt.value}
		wants(t, c.check("constraint"), tt.says)
	}
}
