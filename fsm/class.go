package fsm

import "strings"

// ClassName is a named priority.
type ClassName string

// The built-in classes, from first to last.
const (
	ClassSystem     ClassName = "system"
	ClassCritical   ClassName = "critical"
	ClassProduction ClassName = "production" // the default
	ClassBatch      ClassName = "batch"
)

// BuiltinClasses is the order that a new cluster starts with.
func BuiltinClasses() []ClassName {
	return []ClassName{ClassSystem, ClassCritical, ClassProduction, ClassBatch}
}

// joinClasses lists classes for people.
func joinClasses(names []ClassName) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, ", ")
}
