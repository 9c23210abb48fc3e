package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

func (c *BudgetSet) apply(s *State) error {
	if !model.ValidName(string(c.Name)) {
		return model.Refuse(model.CodeInvalid, "budget name %q: use 1 to 63 letters, digits, '-', '_' or '.'", c.Name)
	}
	if refusal := c.Spec.Check(); refusal != nil {
		return refusal
	}
	if c.Spec == (model.BudgetSpec{Blocking: c.Spec.Blocking}) {
		return model.Refuse(model.CodeInvalid, "budget %s limits nothing", c.Name).
			WithHint("give min_ready, max_down or rate")
	}
	old, exists := s.Budgets.Get(c.Name)
	next := SharedBudget{Name: c.Name}
	if exists {
		next = *old
		if sameEncoding(old.Spec, c.Spec) {
			return nil
		}
	}
	next.Spec, next.Index = c.Spec, s.Index
	if refusal := s.mayShare(&next); refusal != nil {
		return refusal
	}
	s.putBudget(&next)
	for _, id := range next.Groups { // the default of the class may now apply, or no longer apply
		s.resolveOwn(id)
	}
	s.touchBudget(c.Name)
	if !s.resolveShared(c.Name) { // resolveShared emits an event if the numbers change
		minReady := fmt.Sprint(next.Resolved.MinReady)
		s.emit(Event{Type: model.EventBudget, Subject: "budget/" + string(c.Name), Before: minReady, After: minReady,
			Data: map[string]string{"reason": "it is written in another way, its numbers are the same"}})
	}
	return nil
}

// mayShare refuses a budget that lets no instance be down if one of its groups has instances and the order stop_first,
// because a drain could then never stop an instance of that group. A budget that is marked as blocking is accepted.
func (s *State) mayShare(b *SharedBudget) *model.Error {
	want := 0
	var stuck model.GroupID
	for _, id := range b.Groups {
		g, ok := s.Groups.Get(id)
		policy, known := s.Policy(id)
		if !ok || !known {
			continue
		}
		want += g.Want()
		if g.Want() > 0 && policy.StopsFirst() {
			stuck = id
		}
	}
	if r := model.ResolveBudget(&b.Spec, everything(), want); r.MaxDown > 0 || stuck == "" || b.Spec.Blocking {
		return nil
	}
	return model.Refuse(model.CodeInvalid,
		"budget %s would keep all %d ready, and %s is stopped before it is replaced, so no drain could ever finish",
		b.Name, want, stuck).
		WithHint("allow one to be down, use order = \"surge\", or set the budget with blocking")
}

func (s *State) touchBudget(name model.BudgetName) { s.touch("budgets", "jobs", Topic("budget/"+name)) }

func (c *BudgetRemove) apply(s *State) error {
	b, ok := s.Budgets.Get(c.Name)
	switch {
	case !ok:
		return model.Refuse(model.CodeNotFound, "there is no shared budget %s", c.Name).
			WithHint("list them with: outspan budget ls")
	case len(b.Groups) > 0:
		return model.Refuse(model.CodeInUse, "budget %s is named by %s", c.Name, joinGroups(b.Groups)).
			WithHint("take it out of those jobs first, or purge them")
	}
	s.delBudget(c.Name)
	s.touchBudget(c.Name)
	s.emit(Event{Type: model.EventBudget, Subject: "budget/" + string(c.Name),
		Before: fmt.Sprint(b.Resolved.MinReady), After: "removed"})
	return nil
}

// joinGroups returns the ids of the first five groups, and how many groups follow.
func joinGroups(ids []model.GroupID) string {
	var texts []string
	for _, id := range ids[:min(len(ids), 5)] {
		texts = append(texts, string(id))
	}
	if more := len(ids) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, ", ")
}

// SharedBudgets lists the shared budgets of a group, in the order in which the group names them.
func (s *jobs) SharedBudgets(id model.GroupID) []*SharedBudget {
	if s.Budgets.Len() == 0 {
		return nil
	}
	policy, ok := s.Policy(id)
	if !ok {
		return nil
	}
	var in []*SharedBudget
	for _, name := range policy.Budgets {
		if b, ok := s.Budgets.Get(name); ok && slices.Contains(b.Groups, id) {
			in = append(in, b)
		}
	}
	return in
}

// setSharedBudgets makes a group a member of the named budgets and of no others.
func (s *State) setSharedBudgets(id model.GroupID, names []model.BudgetName) {
	var moved []*SharedBudget
	for name, b := range s.Budgets.All() {
		if slices.Contains(b.Groups, id) != slices.Contains(names, name) {
			moved = append(moved, b)
		}
	}
	for _, b := range moved {
		next := *b
		next.Groups = slices.DeleteFunc(slices.Clone(b.Groups), func(x model.GroupID) bool { return x == id })
		if slices.Contains(names, b.Name) {
			next.Groups = append(next.Groups, id)
			slices.Sort(next.Groups)
		}
		s.putBudget(&next)
		s.touchBudget(b.Name)
		s.resolveShared(b.Name)
	}
}

// resolveShared recomputes a shared budget's numbers for the sum of its groups' counts, and reports whether they
// changed.
func (s *State) resolveShared(name model.BudgetName) bool {
	b, ok := s.Budgets.Get(name)
	if !ok {
		return false
	}
	resolved := model.ResolveBudget(&b.Spec, everything(), s.sharedWant(b))
	if resolved == b.Resolved {
		return false
	}
	next := *b
	next.Resolved = resolved
	s.putBudget(&next)
	s.touchBudget(name)
	s.emitBudget("budget/"+string(name), b.Resolved, resolved)
	return true
}

func (s *jobs) sharedWant(b *SharedBudget) int {
	want := 0
	for _, id := range b.Groups {
		if g, ok := s.Groups.Get(id); ok {
			want += g.Want()
		}
	}
	return want
}

// checkSharedBudgets refuses a group if a shared budget that it names does not exist or has maxSharers groups already.
// It also refuses a group with the order stop_first and a count above 0 that names a budget which lets no instance be
// down, unless that budget is marked as blocking.
func (s *State) checkSharedBudgets(id model.GroupID, g *model.GroupSpec) *model.Error {
	for _, name := range g.Budgets {
		b, ok := s.Budgets.Get(name)
		if !ok {
			return model.Refuse(model.CodeUnknownBudget, "%s names the budget %q, which does not exist", id, name).
				WithHint("%s", s.budgetHint(name))
		}
		if len(b.Groups) >= maxSharers && !slices.Contains(b.Groups, id) {
			return model.Refuse(model.CodeInvalid, "budget %s is shared by %d groups, which is the most", name, maxSharers).
				WithHint("let %s name another budget", id)
		}
		if g.Count > 0 && g.StopsFirst() && allowsNone(&b.Spec) && !b.Spec.Blocking {
			return model.Refuse(model.CodeInvalid,
				"budget %s allows nothing to be down, and %s is stopped before it is replaced, so no drain could ever finish",
				name, id).
				WithHint("let the budget allow one to be down, use order = \"surge\", or set the budget with blocking")
		}
	}
	return nil
}

func (s *jobs) budgetHint(name model.BudgetName) string {
	var known []string
	for have := range s.Budgets.All() {
		if len(known) < 10 {
			known = append(known, string(have))
		}
	}
	create := fmt.Sprintf("make it with: outspan budget set %s --min-ready N", name)
	if len(known) == 0 {
		return create
	}
	return fmt.Sprintf("%s; or name one of: %s", create, strings.Join(known, ", "))
}
