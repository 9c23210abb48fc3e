package model

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func validAttribute(name string) bool {
	return name == "node.id" || name == "node.name" || strings.HasPrefix(name, "node.label.") &&
		len(name) > len("node.label.") ||
		strings.HasPrefix(name, "node.attr.") && len(name) > len("node.attr.")
}

func unknownAttribute(name string) *Error {
	return Refuse(CodeInvalid, "attribute %q is unknown", name).
		WithHint("use node.id, node.name, node.label.X or node.attr.X")
}

func (c *Constraint) check(noun string) *Error {
	if !validAttribute(c.Attribute) {
		return unknownAttribute(c.Attribute)
	}
	switch c.Operator {
	case "=", "!=", "<", "<=", ">", ">=", "in", "not_in", "is_set", "is_not_set", "":
		return nil
	case "regexp":
		if _, err := regexp.Compile(c.Value); err != nil || len(c.Value) > 256 {
			return Refuse(CodeInvalid, "%s on %s: %q is no regular expression of at most 256 characters",
				noun, c.Attribute, c.Value)
		}
		return nil
	}
	return Refuse(CodeInvalid, "%s on %s: operator %q is unknown", noun, c.Attribute, c.Operator).
		WithHint("use one of: = != < <= > >= regexp in not_in is_set is_not_set")
}

// Holds reports whether a node satisfies the constraint. The parameter value is what the node has for the constraint's
// attribute; set is false if the node lacks the attribute. A missing attribute satisfies only !=, not_in and
// is_not_set. The operators <, <=, > and >= compare two numbers as numbers, and anything else as text. The operators in
// and not_in take a comma-separated list.
func (c *Constraint) Holds(value string, set bool) bool {
	switch c.Operator {
	case "is_set":
		return set
	case "is_not_set":
		return !set
	case "!=":
		return !set || value != c.Value
	case "not_in":
		return !set || !inList(value, c.Value)
	}
	if !set {
		return false
	}
	switch c.Operator {
	case "in":
		return inList(value, c.Value)
	case "regexp":
		re, err := regexp.Compile(c.Value)
		return err == nil && re.MatchString(value)
	case "<":
		return compareValues(value, c.Value) < 0
	case "<=":
		return compareValues(value, c.Value) <= 0
	case ">":
		return compareValues(value, c.Value) > 0
	case ">=":
		return compareValues(value, c.Value) >= 0
	}
	return value == c.Value
}

func inList(value, list string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(item string) bool {
		return strings.TrimSpace(item) == value
	})
}

func compareValues(a, b string) int {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	if errX != nil || errY != nil {
		return strings.Compare(a, b)
	}
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// OperatorLabel is the prefix of labels that operators may set and agents may not. A constraint on such a label keeps
// work away from machines that no operator has approved.
const OperatorLabel = "operator."

// AttributeBackup is the attribute with the path of a node's backup directory. A node without a backup directory lacks
// this attribute.
const AttributeBackup = "backup_dir"
