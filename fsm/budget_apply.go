package fsm

import (
	"fmt"
)

// maxRate bounds how many stops of a window are remembered.
const maxRate = 10_000

// Of resolves an amount for a count. A percentage of what must be ready is rounded up, of what may be down it is rounded down, so that
// rounding never allows more.
func (a Amount) Of(count int, up bool) int {
	if !a.Percent {
		return a.N
	}
	n := count * a.N
	if up {
		n += 99
	}
	return n / 100
}

// String writes an amount as the job file would.
func (a Amount) String() string {
	if a.Percent {
		return fmt.Sprintf("%d%%", a.N)
	}
	return fmt.Sprint(a.N)
}

// MarshalText implements encoding.TextMarshaler, for JSON.
func (a Amount) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler, for JSON.
func (a *Amount) UnmarshalText(text []byte) error {
	var n int
	rest := ""
	if _, err := fmt.Sscanf(string(text), "%d%s", &n, &rest); err != nil && rest != "" || n < 0 || rest != "" && rest != "%" {
		return fmt.Errorf("%q is neither a number of instances nor a percentage", text)
	}
	*a = Amount{N: n, Percent: rest == "%"}
	if a.String() != string(text) {
		return fmt.Errorf("%q is neither a number of instances nor a percentage", text)
	}
	return nil
}

func (a Amount) valid() bool {
	return a.N >= 0 && a.N <= maxCount*maxGroups && (!a.Percent || a.N <= 100)
}

// check refuses what can't be right whatever the budget is for.
func (b *BudgetSpec) check() *Error {
	switch {
	case b.MinReady != nil && b.MaxDown != nil:
		return Refuse(CodeInvalid, "budget has both min_ready and max_down; give one")
	case b.MinReady != nil && !b.MinReady.valid() || b.MaxDown != nil && !b.MaxDown.valid():
		return Refuse(CodeInvalid, "budget: an amount must be 0 or more, a percentage 0%% to 100%%")
	case b.Rate != nil && (b.Rate.Max < 1 || b.Rate.Max > maxRate || b.Rate.Window < Second):
		return Refuse(CodeInvalid, "budget.rate: max must be 1 to %d, window at least 1s", maxRate)
	}
	return nil
}

// limitsNumber reports whether the budget says how many may be down; otherwise it limits at most their rate.
func (b *BudgetSpec) limitsNumber() bool { return b.MinReady != nil || b.MaxDown != nil }

// allowsNone reports whether the budget lets nothing be down, whatever the count.
func (b *BudgetSpec) allowsNone() bool {
	return b.MaxDown != nil && b.MaxDown.N == 0 || b.MinReady != nil && *b.MinReady == Amount{N: 100, Percent: true}
}

// everything is the default of who has a budget elsewhere: all may be down as far as this one is concerned.
func everything() MaxDown { return MaxDown{Amount: Amount{N: 100, Percent: true}} }

// ResolveBudget turns a budget into numbers for a count. def is how many may be down where the spec, which may be nil, does not say it.
func ResolveBudget(spec *BudgetSpec, def MaxDown, count int) Budget {
	down := def.Of(count)
	var b Budget
	if spec != nil {
		switch {
		case spec.MinReady != nil:
			down = count - min(spec.MinReady.Of(count, true), count)
		case spec.MaxDown != nil:
			down = min(spec.MaxDown.Of(count, false), count)
		}
		if spec.Rate != nil {
			b.RateMax, b.Window = spec.Rate.Max, spec.Rate.Window
		}
	}
	b.MaxDown = max(down, 0)
	b.MinReady = count - b.MaxDown
	return b
}

// ResolveGroup returns the numbers of a group's own budget for a count: of its block, otherwise the class's default, unless a shared budget
// that the group names says how many may be down.
func (s *State) ResolveGroup(spec *GroupSpec, class ClassName, count int) Budget {
	c, _, _ := s.Class(class)
	def := c.MaxDown
	if spec.Budget == nil && s.sharesNumber(spec.Budgets) {
		def = everything()
	}
	return ResolveBudget(spec.Budget, def, count)
}

func (s *State) sharesNumber(names []BudgetName) bool {
	for _, name := range names {
		if b, ok := s.Budgets.Get(name); ok && b.Spec.limitsNumber() {
			return true
		}
	}
	return false
}

// resolveBudget writes a group's own budget anew, and the shared ones that it is in; called by each entry that changes its count.
func (s *State) resolveBudget(id GroupID) {
	s.resolveOwn(id)
	for _, b := range s.SharedBudgets(id) {
		s.resolveShared(b.Name)
	}
}

func (s *State) resolveOwn(id GroupID) {
	g, ok := s.Groups.Get(id)
	job, known := s.Jobs.Get(jobOf(id))
	if !ok || !known {
		return
	}
	policy, ok := s.Policy(id)
	if !ok {
		return
	}
	b := s.ResolveGroup(policy, job.Class, s.Want(g))
	if b == g.Budget {
		return
	}
	next := *g
	next.Budget = b
	s.putGroup(&next)
	if g.Role != RoleSystem {
		s.emitBudget("group/"+string(id), g.Budget, b)
	}
}

// emitBudget says that a budget was resolved to other numbers. How many may be down follows from the count, which has its own event.
func (s *State) emitBudget(subject string, before, after Budget) {
	e := Event{Type: EventBudget, Subject: subject, Before: fmt.Sprint(before.MinReady), After: fmt.Sprint(after.MinReady)}
	if before.RateMax != after.RateMax || before.Window != after.Window {
		e.Data = map[string]string{"rate": after.rate()}
	} else if before.MinReady == after.MinReady {
		return
	}
	s.emit(e)
}

// rate writes how many stops may begin in which time.
func (b Budget) rate() string {
	if b.RateMax == 0 {
		return "none"
	}
	return fmt.Sprintf("%d in %s", b.RateMax, b.Window)
}

// Want is the number of instances a group should have: its count, or for a system group what it has on nodes that are not offline,
// and what is being replaced there.
func (s *State) Want(g *Group) int {
	if g.Role == RoleSystem {
		return g.Running - g.Lost + g.Replaced
	}
	return g.Count
}

// Valid reports whether c is in the closed set.
func (c Cause) Valid() bool {
	_, ok := c.Known()
	return ok
}

// Known returns the cause as a constant of this program, so that a row that keeps it does not keep the bytes that it was decoded from.
func (c Cause) Known() (Cause, bool) {
	for _, one := range [...]Cause{
		CauseScaleUp, CauseScaleDown, CauseRollout, CauseNodeDraining, CauseNodeDisabled, CauseNodeOffline, CauseUser, CauseCrashLoop, CauseStartTimeout,
		CauseOOM, CauseCheckFailed, CauseDrainTimeout, CauseJobStopped, CauseFenced, CausePreempted, CauseRebalance, CauseAffinity, CauseRoleReplacement,
		CauseRestored, CauseNodeNotReady,
	} {
		if c == one {
			return one, true
		}
	}
	return c, false
}

// Voluntary reports whether a stop for this cause is the system's or an operator's choice, so that it uses rates.
func (c Cause) Voluntary() bool {
	switch c {
	case CauseRollout, CauseNodeDraining, CauseUser, CausePreempted, CauseRebalance, CauseAffinity, CauseRoleReplacement, CauseNodeNotReady, CauseCheckFailed: // of one that failed nothing is spent
		return true
	}
	return false
}
