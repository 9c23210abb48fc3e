package fsm

import (
	"fmt"

	"github.com/outspan/outspan/model"
)

// limitsNumber reports whether the budget limits how many instances may be down. A budget may limit only the rate.
func limitsNumber(b *model.BudgetSpec) bool { return b.MinReady != nil || b.MaxDown != nil }

// allowsNone reports whether the budget allows no instance to be down, whatever the count.
func allowsNone(b *model.BudgetSpec) bool {
	return b.MaxDown != nil && b.MaxDown.N == 0 || b.MinReady != nil && *b.MinReady == model.Amount{N: 100, Percent: true}
}

// everything allows all instances to be down. It is the default for shared budgets. It is also the default for groups
// without a budget block, if one of their shared budgets limits how many may be down.
func everything() model.MaxDown { return model.MaxDown{Amount: model.Amount{N: 100, Percent: true}} }

// ResolveGroup returns the numbers of a group's own budget for a count. If the spec has no budget block, or the block
// does not limit how many instances may be down, the default of the class applies. But if the spec has no budget block
// and one of its shared budgets limits how many may be down, all may be down.
func (s *State) ResolveGroup(spec *model.GroupSpec, class model.ClassName, count int) model.Budget {
	c, _, _ := s.Class(class)
	def := c.MaxDown
	if spec.Budget == nil && s.sharesNumber(spec.Budgets) {
		def = everything()
	}
	return model.ResolveBudget(spec.Budget, def, count)
}

func (s *jobs) sharesNumber(names []model.BudgetName) bool {
	for _, name := range names {
		if b, ok := s.Budgets.Get(name); ok && limitsNumber(&b.Spec) {
			return true
		}
	}
	return false
}

// resolveBudget recomputes a group's own budget and its shared budgets. It must be called after each change of Want.
func (s *State) resolveBudget(id model.GroupID) {
	s.resolveOwn(id)
	for _, b := range s.SharedBudgets(id) {
		s.resolveShared(b.Name)
	}
}

func (s *State) resolveOwn(id model.GroupID) {
	g, ok := s.Groups.Get(id)
	job, known := s.Jobs.Get(jobOf(id))
	if !ok || !known {
		return
	}
	policy, ok := s.Policy(id)
	if !ok {
		return
	}
	b := s.ResolveGroup(policy, job.Class, g.Want())
	if b == g.Budget {
		return
	}
	next := *g
	next.Budget = b
	s.putGroup(&next)
	if g.Role != model.RoleSystem {
		s.emitBudget("group/"+string(id), g.Budget, b)
	}
}

// emitBudget emits an event if min_ready or the rate of a budget changed. If only MaxDown changed, the count has
// changed too, and the change of the count has its own event.
func (s *State) emitBudget(subject string, before, after model.Budget) {
	e := Event{Type: model.EventBudget, Subject: subject, Before: fmt.Sprint(before.MinReady),
		After: fmt.Sprint(after.MinReady)}
	if before.RateMax != after.RateMax || before.Window != after.Window {
		e.Data = map[string]string{"rate": rateText(after)}
	} else if before.MinReady == after.MinReady {
		return
	}
	s.emit(e)
}

func rateText(b model.Budget) string {
	if b.RateMax == 0 {
		return "none"
	}
	return fmt.Sprintf("%d in %s", b.RateMax, b.Window)
}

// Want returns the number of instances that a group should have. For a system group, this is the number of its
// instances on nodes that are not offline, including instances that are being replaced on the same node.
func (g *Group) Want() int {
	if g.Role == model.RoleSystem {
		return g.Running - g.Lost + g.Replaced
	}
	return g.Count
}
