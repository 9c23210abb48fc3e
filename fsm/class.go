package fsm

import (
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

// Class is a priority level: what comes earlier in State.Classes is more important. Its name, place and limits are all there is to it, so
// that a new one is one log entry and rewrites no instance (R7).
type Class struct {
	Name         model.ClassName `cbor:"1,keyasint"`
	MaxDown      model.MaxDown   `cbor:"2,keyasint"`           // of groups that say nothing themselves
	Quota        Quota           `cbor:"3,keyasint,omitempty"` // of all instances of the class together
	PreemptEqual PreemptEqual    `cbor:"4,keyasint,omitempty"`
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
		{Name: model.ClassSystem, MaxDown: model.MaxDown{Amount: model.Amount{N: 1}}, PreemptEqual: PreemptOff},
		{Name: model.ClassCritical, MaxDown: model.MaxDown{Amount: model.Amount{N: 1}}, PreemptEqual: PreemptOff},
		{Name: model.ClassProduction, MaxDown: model.DefaultMaxDown(), PreemptEqual: PreemptOff},
		{Name: model.ClassBatch, MaxDown: model.MaxDown{Amount: model.Amount{N: 50, Percent: true}, Floor: 1}, PreemptEqual: PreemptOff},
	}
}

// Class finds a class by name and its rank: 0 is the most important.
func (s *State) Class(name model.ClassName) (Class, int, bool) {
	i := slices.IndexFunc(s.Classes, func(c Class) bool { return c.Name == name })
	if i < 0 {
		return Class{}, len(s.Classes), false
	}
	return s.Classes[i], i, true
}

// ClassRank is the place of a class in the order, 0 for the most important; an unknown one comes last.
func (s *State) ClassRank(name model.ClassName) int {
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
