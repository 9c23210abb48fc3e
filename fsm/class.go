package fsm

import (
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

// Class is a priority level. A class that is earlier in State.Classes is more important. Instances don't store their
// class, so a new class takes one log entry and rewrites no instance (R7).
type Class struct {
	Name         model.ClassName    `cbor:"1,keyasint"`
	MaxDown      model.MaxDown      `cbor:"2,keyasint"`           // default for the budgets of the class's groups
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

// Class returns the named class and its rank. Rank 0 is the most important. For an unknown class, it returns false and
// a rank after all other ranks.
func (s *rules) Class(name model.ClassName) (Class, int, bool) {
	i := slices.IndexFunc(s.Classes, func(c Class) bool { return c.Name == name })
	if i < 0 {
		return Class{}, len(s.Classes), false
	}
	return s.Classes[i], i, true
}

// ClassRank returns the rank of a class. Rank 0 is the most important. An unknown class has a rank after all known
// classes.
func (s *rules) ClassRank(name model.ClassName) int {
	_, rank, _ := s.Class(name)
	return rank
}

func joinClasses(classes []Class) string {
	texts := make([]string, len(classes))
	for i, c := range classes {
		texts[i] = string(c.Name)
	}
	return strings.Join(texts, ", ")
}
