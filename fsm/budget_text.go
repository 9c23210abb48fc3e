package fsm

import (
	"fmt"
	"strings"

	"github.com/outspan/outspan/model"
)

// BudgetLines returns the numbers of every budget of a group, with an explanation. The group's own budget is the first
// line. The shared budgets follow.
func (s *State) BudgetLines(id model.GroupID) []model.BudgetLine {
	policy, ok := s.Policy(id)
	if !ok {
		return nil
	}
	g, _ := s.Groups.Get(id)
	job, _ := s.Jobs.Get(jobOf(id))
	class, _, _ := s.Class(job.Class)
	own := lineOf(string(id), model.ScopeGroup, g.Budget, g.Want())
	own.Text = describeBudget(&own, policy.Budget, class, policy.Budget == nil && s.sharesNumber(policy.Budgets))
	lines := []model.BudgetLine{own}
	for _, b := range s.SharedBudgets(id) {
		lines = append(lines, b.Line(s))
	}
	return lines
}

func lineOf(name, scope string, b model.Budget, want int) model.BudgetLine {
	return model.BudgetLine{Name: name, Scope: scope, Want: want, MinReady: b.MinReady, MaxDown: b.MaxDown}
}

// PreviewBudget returns the numbers that a group's own budget will have in a cluster with the built-in classes. It
// assumes that the shared budgets of the group limit how many instances may be down.
func PreviewBudget(g *model.GroupSpec, job model.JobName, class model.ClassName) model.BudgetLine {
	s := State{rules: rules{Classes: BuiltinClasses()}}
	c, _, known := s.Class(class)
	def, elsewhere := c.MaxDown, g.Budget == nil && len(g.Budgets) > 0
	if elsewhere {
		def = everything()
	}
	line := lineOf(string(model.NewGroupID(job, g.Name)), model.ScopeGroup,
		model.ResolveBudget(g.Budget, def, g.Count), g.Count)
	line.Text = describeBudget(&line, g.Budget, c, elsewhere)
	if !known && !elsewhere && (g.Budget == nil || !limitsNumber(g.Budget)) {
		line.Text = fmt.Sprintf("as the cluster's class %s says", class)
	}
	return line
}

// describeBudget explains in words why a line has its numbers. If elsewhere is true, the default of the class does not
// apply.
func describeBudget(l *model.BudgetLine, spec *model.BudgetSpec, class Class, elsewhere bool) string {
	var b strings.Builder
	switch {
	case spec != nil && spec.MinReady != nil:
		fmt.Fprintf(&b, "%s (min_ready %s%s)", budgetNumbers(l), spec.MinReady, rounding(*spec.MinReady, l.Want, "up"))
		if !elsewhere && !spec.MinReady.Percent && spec.MinReady.N > l.Want {
			b.WriteString(": min_ready is more than the count, so it keeps all of them; lower it, or raise the count")
		}
	case spec != nil && spec.MaxDown != nil:
		fmt.Fprintf(&b, "%s (max_down %s%s)", budgetNumbers(l), spec.MaxDown, rounding(*spec.MaxDown, l.Want, "down"))
	case elsewhere:
		b.WriteString("any number may be down")
	default:
		fmt.Fprintf(&b, "%s (class %s: max_down %s%s", budgetNumbers(l), class.Name, class.MaxDown.Amount,
			rounding(class.MaxDown.Amount, l.Want, "down"))
		if class.MaxDown.Floor > 0 {
			fmt.Fprintf(&b, ", at least %d", class.MaxDown.Floor)
		}
		b.WriteString(")")
	}
	if spec != nil && spec.Rate != nil {
		fmt.Fprintf(&b, "; at most %d within %s", spec.Rate.Max, spec.Rate.Window)
	}
	if spec != nil && spec.Blocking {
		b.WriteString("; blocking")
	}
	return b.String()
}

func budgetNumbers(l *model.BudgetLine) string {
	return fmt.Sprintf("%d of %d must be ready, %d may be down", l.MinReady, l.Want, l.MaxDown)
}

func rounding(a model.Amount, want int, way string) string {
	if !a.Percent {
		return ""
	}
	if a.N*want%100 == 0 {
		return fmt.Sprintf(" of %d", want)
	}
	return fmt.Sprintf(" of %d, rounded %s", want, way)
}

// Line returns the numbers of a shared budget, with an explanation.
func (b *SharedBudget) Line(s *State) model.BudgetLine {
	line := lineOf(string(b.Name), model.ScopeShared, b.Resolved, s.sharedWant(b))
	line.Text = describeBudget(&line, &b.Spec, Class{}, true)
	return line
}
