package fsm

import (
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

// Class is a priority level. A class that comes earlier in State.Classes is more important. It has only a name, a place
// and limits, so a new one takes one log entry and rewrites no instance (R7).
type Class struct {
	Name         model.ClassName    `cbor:"1,keyasint"`
	MaxDown      model.MaxDown      `cbor:"2,keyasint"`           // of groups that have no budget of their own
	Quota        model.Quota        `cbor:"3,keyasint,omitempty"` // of all instances of the class together
	PreemptEqual model.PreemptEqual `cbor:"4,keyasint,omitempty"`
}

// BuiltinClasses returns the classes of a new cluster, the most important first.
func BuiltinClasses() []Class {
	return []Class{
		{Name: model.ClassSystem, MaxDown: model.MaxDown{Amount: model.Amount{N: 1}}, PreemptEqual: model.PreemptOff},
		{Name: model.ClassCritical, MaxDown: model.MaxDown{Amount: model.Amount{N: 1}}, PreemptEqual: model.PreemptOff},
		{Name: model.ClassProduction, MaxDown: model.DefaultMaxDown(), PreemptEqual: model.PreemptOff},
		{Name: model.ClassBatch, MaxDown: model.MaxDown{Amount: model.Amount{N: 50, Percent: true}, Floor: 1},
			PreemptEqual: model.PreemptOff},
	}
}

// Class finds a class by name and returns its rank; 0 is the most important, and an unknown class comes last.
func (s *rules) Class(name model.ClassName) (Class, int, bool) {
	i := slices.IndexFunc(s.Classes, func(c Class) bool { return c.Name == name })
	if i < 0 {
		return Class{}, len(s.Classes), false
	}
	return s.Classes[i], i, true
}

// ClassRank is the place of a class in the order, 0 for the most important; an unknown one comes last.
func (s *rules) ClassRank(name model.ClassName) int {
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
