package fsm

import (
	"fmt"
	"slices"
)

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

// ResolveBudget turns a group's budget, or its class's default, into numbers for a count.
func ResolveBudget(spec *BudgetSpec, class MaxDown, count int) Budget {
	down := class.Of(count)
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

// resolveBudget writes a group's budget anew; called by each entry that changes its count.
func (s *State) resolveBudget(id GroupID) {
	g, ok := s.Groups.Get(id)
	if !ok {
		return
	}
	job, _ := s.Jobs.Get(jobOf(id))
	policy, ok := s.Policy(id)
	if !ok || job == nil {
		return
	}
	class, _, _ := s.Class(job.Class)
	b := ResolveBudget(policy.Budget, class.MaxDown, s.Want(g))
	if b == g.Budget {
		return
	}
	next := *g
	next.Budget = b
	s.Groups.put(id, &next)
	if g.Role != RoleSystem {
		s.emit(Event{Type: EventBudget, Subject: "group/" + string(id), Before: fmt.Sprint(g.Budget.MinReady), After: fmt.Sprint(b.MinReady)})
	}
}

// Want is the number of instances a group should have: its count, or for a system group what it has.
func (s *State) Want(g *Group) int {
	if g.Role == RoleSystem {
		return min(g.Running, max(g.Count, g.Running))
	}
	return g.Count
}

// CheckBudget returns nil if a voluntary stop of inst may begin now; otherwise budget_min_ready with what it waits for, or budget_rate with the time from
// which the window allows it again (Never with budget_min_ready: only a change can help). All of it is derived from rows at Apply, so
// two leaders, two clients or a stale plan can't overshoot (model section 7).
func (s *State) CheckBudget(inst *Instance, cause Cause) (*Error, Time) {
	g, ok := s.Groups.Get(inst.Group)
	if !ok {
		return nil, 0
	}
	minReady := g.Budget.MinReady
	switch {
	case inst.Ready():
		if g.Ready-1 < minReady {
			return Refuse(CodeBudgetMinReady, "%s has %d ready and must keep %d", g.ID, g.Ready, minReady).
				WithHint("it waits until %d are ready; see: outspan budget status %s", minReady+1, g.ID), Never
		}
	case cause == CauseScaleDown:
	case g.Ready < minReady && !s.unreadyLong(inst):
		return Refuse(CodeBudgetMinReady, "%s has %d ready and must have %d before one that isn't ready may go", g.ID, g.Ready, minReady).
			WithHint("it waits until %d are ready; see: outspan budget status %s", minReady, g.ID), Never
	}
	if cause == CauseScaleDown || g.Budget.RateMax == 0 {
		return nil, 0
	}
	if next := s.NextStop(g); next > s.Now {
		wait := (next.Sub(s.Now) + Second - 1) / Second * Second // whole seconds, so that who waits for them is not refused again
		return Refuse(CodeBudgetRate, "%s may lose %d per %s; the next is allowed in %s", g.ID, g.Budget.RateMax, g.Budget.Window, wait).
			WithHint("try again then; see: outspan budget status %s", g.ID), next
	}
	return nil, 0
}

// NextStop is the earliest time at which the group's rate allows another stop to begin; it may be past.
func (s *State) NextStop(g *Group) Time {
	if g.Budget.RateMax == 0 || len(g.Stops) < g.Budget.RateMax {
		return 0
	}
	return g.Stops[len(g.Stops)-g.Budget.RateMax].Add(g.Budget.Window)
}

// unreadyLong reports whether an instance has been unready for longer than its group tolerates; then it is no longer kept for the budget's sake.
func (s *State) unreadyLong(inst *Instance) bool {
	policy, ok := s.Policy(inst.Group)
	if !ok || policy.Toleration.NotReady == nil {
		return ok
	}
	return s.Now > inst.Marks.UnreadySince.Add(*policy.Toleration.NotReady)
}

// spendRate notes a stop that the group's rate counts.
func (s *State) spendRate(inst *Instance, c *InstanceStop) {
	g, ok := s.Groups.Get(inst.Group)
	if !ok || g.Budget.RateMax == 0 || !c.Cause.voluntary() {
		return
	}
	switch inst.Status.Observed {
	case ObservedLost, ObservedFailed, ObservedPending:
		return
	}
	next := *g
	next.Stops = slices.DeleteFunc(slices.Clone(g.Stops), func(t Time) bool { return t.Add(g.Budget.Window) <= s.Now })
	next.Stops = append(next.Stops, s.Now)
	s.Groups.put(next.ID, &next)
}

// Valid reports whether c is in the closed set.
func (c Cause) Valid() bool {
	switch c {
	case CauseScaleUp, CauseScaleDown, CauseRollout, CauseNodeDraining, CauseNodeDisabled, CauseNodeOffline, CauseUser, CauseCrashLoop, CauseStartTimeout,
		CauseOOM, CauseCheckFailed, CauseDrainTimeout, CauseJobStopped, CauseFenced, CausePreempted, CauseRebalance, CauseAffinity, CauseRoleReplacement:
		return true
	}
	return false
}

// voluntary reports whether a stop for this cause is the system's or an operator's choice, so that it uses the rate.
func (c Cause) voluntary() bool {
	switch c {
	case CauseRollout, CauseNodeDraining, CauseUser, CausePreempted, CauseRebalance, CauseAffinity, CauseRoleReplacement:
		return true
	}
	return false
}
