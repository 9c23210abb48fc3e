package fsm

import (
	"fmt"
	"slices"
	"strings"
)

// ClassName is a named priority.
type ClassName string

// The built-in classes, from first to last.
const (
	ClassSystem     ClassName = "system"
	ClassCritical   ClassName = "critical"
	ClassProduction ClassName = "production" // the default
	ClassBatch      ClassName = "batch"
)

// Class is a priority level: what comes earlier in State.Classes is more important. Its name, place and limits are all there is to it, so
// that a new one is one log entry and rewrites no instance (R7).
type Class struct {
	Name         ClassName    `cbor:"1,keyasint"`
	MaxDown      MaxDown      `cbor:"2,keyasint"`           // of groups that say nothing themselves
	Quota        Quota        `cbor:"3,keyasint,omitempty"` // of all instances of the class together
	PreemptEqual PreemptEqual `cbor:"4,keyasint,omitempty"`
}

// MaxDown is how many instances of a group may be down by default: Amount, a percentage rounded down, and at least Floor.
type MaxDown struct {
	Amount Amount `cbor:"1,keyasint"`
	Floor  int    `cbor:"2,keyasint,omitempty"`
}

// Of is the number for a count; never more than it.
func (m MaxDown) Of(count int) int {
	return max(min(max(m.Amount.Of(count, false), m.Floor), count), 0)
}

// String writes it as people do: "25%, at least 1".
func (m MaxDown) String() string {
	if m.Floor > 0 {
		return fmt.Sprintf("%s, at least %d", m.Amount, m.Floor)
	}
	return m.Amount.String()
}

// Quota limits a class: every instance that is not stopped counts, its memory with the overhead. Zero: no limit.
type Quota struct {
	MemoryBytes int64 `json:"memory_bytes" cbor:"1,keyasint,omitempty"`
	Instances   int   `json:"instances" cbor:"2,keyasint,omitempty"`
}

// PreemptEqual says whether an instance that fits nowhere may preempt one of its own class.
type PreemptEqual string

// The values of PreemptEqual. Fair: only where it strictly lowers the largest owner's share.
const (
	PreemptOff  PreemptEqual = "off"
	PreemptFair PreemptEqual = "fair"
)

// Valid reports whether p is in the closed set.
func (p PreemptEqual) Valid() bool { return p == PreemptOff || p == PreemptFair }

// String implements fmt.Stringer.
func (p PreemptEqual) String() string { return string(p) }

// BuiltinClasses are those that a new cluster starts with, in their order.
func BuiltinClasses() []Class {
	return []Class{
		{Name: ClassSystem, MaxDown: MaxDown{Amount: Amount{N: 1}}, PreemptEqual: PreemptOff},
		{Name: ClassCritical, MaxDown: MaxDown{Amount: Amount{N: 1}}, PreemptEqual: PreemptOff},
		{Name: ClassProduction, MaxDown: DefaultMaxDown(), PreemptEqual: PreemptOff},
		{Name: ClassBatch, MaxDown: MaxDown{Amount: Amount{N: 50, Percent: true}, Floor: 1}, PreemptEqual: PreemptOff},
	}
}

// DefaultMaxDown is that of production, and of a new class that is given none.
func DefaultMaxDown() MaxDown { return MaxDown{Amount: Amount{N: 25, Percent: true}, Floor: 1} }

// Class finds a class by name and its rank: 0 is the most important.
func (s *State) Class(name ClassName) (Class, int, bool) {
	i := slices.IndexFunc(s.Classes, func(c Class) bool { return c.Name == name })
	if i < 0 {
		return Class{}, len(s.Classes), false
	}
	return s.Classes[i], i, true
}

// ClassRank is the place of a class in the order, 0 for the most important; an unknown one comes last.
func (s *State) ClassRank(name ClassName) int {
	_, rank, _ := s.Class(name)
	return rank
}

// joinClasses lists classes for people.
func joinClasses(classes []Class) string {
	texts := make([]string, len(classes))
	for i, c := range classes {
		texts[i] = string(c.Name)
	}
	return strings.Join(texts, ", ")
}
