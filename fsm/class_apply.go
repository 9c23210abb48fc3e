package fsm

import (
	"fmt"
	"slices"

	"github.com/outspan/outspan/model"
)

const maxClasses = 64

// ClassSet creates a class, or changes the given fields of an existing class. A new class needs either Below or Above,
// which gives its place in the order. If nothing changes, there is no event. No instance is rewritten (R7). Codes:
// invalid, unknown_class.
type ClassSet struct {
	Name         model.ClassName    `cbor:"1,keyasint"`
	Below        model.ClassName    `cbor:"2,keyasint,omitempty"` // the class that is to be directly before this class
	Above        model.ClassName    `cbor:"3,keyasint,omitempty"` // the class that is to be directly after this class
	MaxDown      *model.MaxDown     `cbor:"4,keyasint,omitempty"`
	Quota        *model.Quota       `cbor:"5,keyasint,omitempty"`
	PreemptEqual model.PreemptEqual `cbor:"6,keyasint,omitempty"`
}

// ClassRemove removes a class. Codes: not_found, in_use (a job has the class), invalid (production, the default class).
type ClassRemove struct {
	Name model.ClassName `cbor:"1,keyasint"`
}

func (c *ClassSet) apply(s *State) error {
	old, at, exists := s.Class(c.Name)
	next := old
	if !exists {
		next = Class{Name: c.Name, MaxDown: model.DefaultMaxDown(), PreemptEqual: model.PreemptOff}
	}
	if refusal := c.check(s, exists); refusal != nil {
		return refusal
	}
	if c.MaxDown != nil {
		next.MaxDown = *c.MaxDown
	}
	if c.Quota != nil {
		next.Quota = *c.Quota
	}
	if c.PreemptEqual != "" {
		next.PreemptEqual = c.PreemptEqual
	}
	classes := slices.Clone(s.Classes) // a published state shares the old slice
	if exists {
		classes = slices.Delete(classes, at, at+1)
	}
	if place, ok := c.place(classes); ok {
		at = place
	}
	classes = slices.Insert(classes, at, next)
	if slices.Equal(classes, s.Classes) {
		return nil
	}
	s.Classes = classes
	if exists && next.MaxDown != old.MaxDown {
		s.resolveClass(c.Name)
	}
	s.touch("settings", "jobs")
	s.emit(Event{Type: model.EventSettings, Subject: "class/" + string(c.Name), After: fmt.Sprint(s.ClassRank(c.Name)),
		Data: classDiff(old, next)})
	return nil
}

func (c *ClassSet) check(s *State, exists bool) *model.Error {
	switch {
	case !model.ValidName(string(c.Name)):
		return model.Refuse(model.CodeInvalid, "class name %q: use 1 to 63 letters, digits, '-', '_' or '.'", c.Name)
	case !exists && c.Below == "" && c.Above == "":
		return model.Refuse(model.CodeUnknownClass, "there is no class %s", c.Name).
			WithHint("to make it say where it stands: --below CLASS or --above CLASS; the classes are: %s",
				joinClasses(s.Classes))
	case !exists && len(s.Classes) >= maxClasses:
		return model.Refuse(model.CodeInvalid, "there are %d classes already", len(s.Classes))
	case c.Below != "" && c.Above != "":
		return model.Refuse(model.CodeInvalid, "give below or above, not both")
	case c.Below == c.Name || c.Above == c.Name:
		return model.Refuse(model.CodeInvalid, "a class can't stand below or above itself")
	case c.MaxDown != nil && (!c.MaxDown.Amount.Valid() || c.MaxDown.Floor < 0):
		return model.Refuse(model.CodeInvalid, "max_down must be 0 or more, a percentage 0%% to 100%%")
	case c.Quota != nil && (c.Quota.MemoryBytes < 0 || c.Quota.Instances < 0):
		return model.Refuse(model.CodeInvalid, "a quota must not be negative; 0 is no limit")
	case c.PreemptEqual != "" && !c.PreemptEqual.Valid():
		return model.Refuse(model.CodeInvalid, "preempt_equal is %q; it must be off or fair", c.PreemptEqual)
	}
	for _, name := range [...]model.ClassName{c.Below, c.Above} {
		if _, _, ok := s.Class(name); name != "" && !ok {
			return model.Refuse(model.CodeUnknownClass, "class %q is unknown", name).
				WithHint("the classes are: %s", joinClasses(s.Classes))
		}
	}
	return nil
}

// place returns the position in classes that Below or Above asks for. It returns false if neither is set.
func (c *ClassSet) place(classes []Class) (int, bool) {
	for i, other := range classes {
		switch other.Name {
		case c.Below:
			return i + 1, true
		case c.Above:
			return i, true
		}
	}
	return 0, false
}

func classDiff(a, b Class) map[string]string {
	diff := map[string]string{}
	for _, f := range [...]struct{ name, before, after string }{
		{"max_down", a.MaxDown.String(), b.MaxDown.String()},
		{"quota_memory_bytes", fmt.Sprint(a.Quota.MemoryBytes), fmt.Sprint(b.Quota.MemoryBytes)},
		{"quota_instances", fmt.Sprint(a.Quota.Instances), fmt.Sprint(b.Quota.Instances)},
		{"preempt_equal", a.PreemptEqual.String(), b.PreemptEqual.String()},
	} {
		if f.before != f.after {
			diff[f.name] = f.before + " -> " + f.after
		}
	}
	return diff
}

// resolveClass recomputes the budgets of a class's groups after the default of the class has changed.
func (s *State) resolveClass(name model.ClassName) {
	var ids []model.GroupID
	for id := range s.Groups.All() {
		if job, ok := s.Jobs.Get(jobOf(id)); ok && job.Class == name {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		s.resolveOwn(id)
	}
}

func (c *ClassRemove) apply(s *State) error {
	_, at, ok := s.Class(c.Name)
	switch {
	case !ok:
		return model.Refuse(model.CodeNotFound, "there is no class %q", c.Name).
			WithHint("the classes are: %s", joinClasses(s.Classes))
	case c.Name == model.ClassProduction:
		return model.Refuse(model.CodeInvalid, "class %s is that of every job that names none; it stays", c.Name)
	}
	for name, job := range s.Jobs.All() {
		if job.Class == c.Name {
			return model.Refuse(model.CodeInUse, "class %s is that of job %s", c.Name, name).
				WithHint("run its jobs with another class, or stop them with --purge")
		}
	}
	s.Classes = slices.Delete(slices.Clone(s.Classes), at, at+1)
	s.touch("settings", "jobs")
	s.emit(Event{Type: model.EventSettings, Subject: "class/" + string(c.Name), Before: fmt.Sprint(at), After: "removed"})
	return nil
}
