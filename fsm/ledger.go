package fsm

import (
	"fmt"
	"slices"

	"github.com/outspan/outspan/model"
)

// Ledger is one budget that applies to instances of a group, with the numbers that the budget limits. The numbers are
// read from the rows each time, so they can't drift.
type Ledger struct {
	Name   string // of the group or the shared budget
	Shared bool
	Budget model.Budget
	Want   int
	Ready  int
	Held   int // ready instances whose stop is being prepared
	Stops  []model.Time

	// Unheard is how many of the Ready instances are ready only according to a restored state, because their agents have
	// not reported since the restore. Instances in Held are not included.
	Unheard int
}

// Ledgers lists the budgets of a group: its own first, then the shared budgets that it names. It returns nil if there
// is no such group.
func (s *State) Ledgers(id model.GroupID) []Ledger {
	g, ok := s.Groups.Get(id)
	if !ok {
		return nil
	}
	all := []Ledger{s.GroupLedger(g)}
	for _, b := range s.SharedBudgets(id) {
		all = append(all, s.SharedLedger(b))
	}
	return all
}

// Unheard reports whether Ledger.Unheard is above 0 in a budget of a group.
func (s *State) Unheard(id model.GroupID) bool {
	return s.unheard.Len() > 0 && slices.ContainsFunc(s.Ledgers(id), func(l Ledger) bool { return l.Unheard > 0 })
}

// GroupLedger returns the ledger of a group's own budget.
func (s *instances) GroupLedger(g *Group) Ledger {
	unheard, _ := s.unheardReady.Get(g.ID)
	return Ledger{Name: string(g.ID), Budget: g.Budget, Want: g.Want(), Ready: g.Ready, Held: g.Held,
		Stops: g.Stops, Unheard: unheard}
}

// SharedLedger returns the ledger of a shared budget, summed up over its groups.
func (s *State) SharedLedger(b *SharedBudget) Ledger {
	l := Ledger{Name: string(b.Name), Shared: true, Budget: b.Resolved, Stops: b.Stops}
	for _, id := range b.Groups {
		if g, ok := s.Groups.Get(id); ok {
			l.Want += g.Want()
			l.Ready += g.Ready
			l.Held += g.Held
			unheard, _ := s.unheardReady.Get(id)
			l.Unheard += unheard
		}
	}
	return l
}

// Allowed returns how many stops of ready instances the budget allows to begin now.
func (l *Ledger) Allowed(now model.Time) int {
	n := max(0, l.Ready-l.Held-l.Unheard-l.Budget.MinReady)
	if l.Budget.RateMax > 0 {
		n = min(n, max(0, l.Budget.RateMax-l.Used(now)))
	}
	return n
}

// AllowsNone reports whether the budget never lets an instance be stopped before its replacement is ready.
func (l *Ledger) AllowsNone() bool { return l.Want > 0 && l.Budget.MinReady >= l.Want }

// BlockingBudget returns the name of a budget of a group for which AllowsNone is true, preferably one that was declared
// with blocking. name is empty if the group has no such budget. declared reports whether the budget has blocking. Only
// the forced deadline of a drain overrides the budget (R26).
func (s *State) BlockingBudget(id model.GroupID) (name string, declared bool) {
	ledgers := s.Ledgers(id)
	if len(ledgers) == 0 {
		return "", false
	}
	if ledgers[0].AllowsNone() {
		policy, ok := s.Policy(id)
		name, declared = ledgers[0].Name, ok && policy.Budget != nil && policy.Budget.Blocking
	}
	for i, b := range s.SharedBudgets(id) {
		if ledgers[i+1].AllowsNone() && !declared {
			name, declared = string(b.Name), b.Spec.Blocking
		}
	}
	return name, declared
}

// Used returns how many stops have begun within the rate's window before now.
func (l *Ledger) Used(now model.Time) int { return usedOf(l.Stops, l.Budget.Window, now) }

// Next returns the earliest time at which the rate allows another stop to begin. That time may be in the past. It is 0
// if there is no rate or the rate is not used up.
func (l *Ledger) Next() model.Time { return nextOf(l.Stops, l.Budget.RateMax, l.Budget.Window) }

func usedOf(stops []model.Time, window model.Duration, now model.Time) int {
	n := 0
	for _, at := range stops {
		n += count(at.Add(window) > now)
	}
	return n
}

func nextOf(stops []model.Time, most int, window model.Duration) model.Time {
	if most == 0 || len(stops) < most {
		return 0
	}
	return stops[len(stops)-most].Add(window)
}

// noteStop returns a copy of stops with one more stop, which begins now. Stops that have left the window are dropped.
// The parameter most is the largest number of stops to keep; the newest ones are kept.
func noteStop(stops []model.Time, most int, window model.Duration, now model.Time) []model.Time {
	kept := slices.DeleteFunc(slices.Clone(stops), func(t model.Time) bool { return t.Add(window) <= now })
	kept = append(kept, now)
	return kept[max(0, len(kept)-most):]
}

// CheckBudget returns nil if a stop of inst may begin now under the budgets of its group (R20, R21) and the rate of the
// actor that wants the stop (R27). With a refusal by a rate (budget_rate, actor_rate), it returns the time at which all
// rates allow the stop. With a refusal by a budget (budget_min_ready), it returns Never. The numbers are read from the
// rows when the stop is applied, so two leaders, two clients or a stale plan can't overshoot.
func (s *State) CheckBudget(inst *Instance, cause model.Cause) (*model.Error, model.Time) {
	if cause == model.CauseStartTimeout && s.startOverdue(inst) {
		return nil, 0 // an instance that did not start in time is a loss, and no budget blocks its stop
	}
	ledgers := s.ledgersFor(inst, cause)
	for i := range ledgers {
		if refusal := s.checkReady(&ledgers[i], inst, cause); refusal != nil {
			return refusal, model.Never
		}
	}
	return s.checkRates(ledgers, cause)
}

// RetryThen begins the hint in a refusal of checkRates.
const RetryThen = "try again then"

// checkRates makes the checks of CheckBudget that concern rates. No rate limits a scale-down.
func (s *State) checkRates(ledgers []Ledger, cause model.Cause) (refusal *model.Error, latest model.Time) {
	if cause == model.CauseScaleDown {
		return nil, 0
	}
	latest = s.Now
	for i := range ledgers {
		l := &ledgers[i]
		if next := l.Next(); next > latest {
			latest = next
			refusal = model.Refuse(model.CodeBudgetRate, "%s may lose %d per %s; the next is allowed in %s", l.Name,
				l.Budget.RateMax, l.Budget.Window, s.until(next)).
				WithHint(RetryThen+"; see: outspan budget status %s", l.Name)
		}
	}
	if actor := cause.StoppedBy(); actor != "" {
		if next := s.NextOf(actor); next > latest {
			latest = next
			refusal = model.Refuse(model.CodeActorRate, "%s is %s in the whole cluster; the next stop is allowed in %s",
				actor.Setting(), s.Settings.ActorRate(actor), s.until(next)).
				WithHint(RetryThen+", or change it with: outspan settings set %s=N/WINDOW", actor.Setting())
		}
	}
	if refusal == nil {
		return nil, 0
	}
	return refusal, latest
}

// ledgersFor lists the ledgers of the budgets that apply to a stop of an instance.
func (s *State) ledgersFor(inst *Instance, cause model.Cause) []Ledger {
	if s.goesWithNode(inst, cause) {
		return nil
	}
	return s.Ledgers(inst.Group)
}

// goesWithNode reports whether an instance of a system group is stopped because its node is drained. The group then
// wants no instance on the node, so no budget limits the stop.
func (s *jobs) goesWithNode(inst *Instance, cause model.Cause) bool {
	g, ok := s.Groups.Get(inst.Group)
	return ok && g.Role == model.RoleSystem && cause == model.CauseNodeDraining
}

// until returns the time left until t in whole seconds, rounded up, so that a caller who waits that long is not refused
// again.
func (s *State) until(t model.Time) model.Duration {
	return (t.Sub(s.Now) + model.Second - 1) / model.Second * model.Second
}

// checkReady checks a stop of inst against one budget. A unit of the budget that inst itself holds does not block its
// stop. Instances that are ready only according to a restored state (Ledger.Unheard) don't count as ready. Code:
// budget_min_ready.
func (s *State) checkReady(l *Ledger, inst *Instance, cause model.Cause) *model.Error {
	held, minReady := l.Held-count(inst.holdsUnit()), l.Budget.MinReady
	but := ""
	if held > 0 {
		but = fmt.Sprintf(", %d of them about to stop,", held)
	}
	if l.Unheard > 0 {
		but += fmt.Sprintf(", %d of them on nodes whose agents have not told since the restore what runs there,", l.Unheard)
	}
	stay := l.Ready - held - l.Unheard
	if inst.Ready() && (inst.holdsUnit() || !s.unheard.Has(inst.Node)) {
		stay-- // inst is to stop, so it does not stay
	}
	refused := func(format string, wait int) *model.Error {
		refusal := model.Refuse(model.CodeBudgetMinReady, format, l.Name, l.Ready, but, minReady)
		if l.Unheard > 0 {
			return refusal.WithHint("it waits until these agents have told, or their nodes are offline, or until %d others "+
				"are ready; see: outspan node ls", wait)
		}
		return refusal.WithHint("it waits until %d are ready; see: outspan budget status %s", wait, l.Name)
	}
	switch {
	case stay >= minReady:
		return nil
	case inst.Ready():
		return refused("%s has %d ready%s and must keep %d", minReady+1)
	case cause == model.CauseScaleDown || s.unreadyLong(inst):
		return nil
	}
	return refused("%s has %d ready%s and must have %d before one that isn't ready may go", minReady)
}

// holdsUnit reports whether the instance is ready and its stop is being prepared. Group.Held is the number of these
// instances.
func (i *Instance) holdsUnit() bool { return i.Eviction.Preparing && i.Ready() }

// unreadyLong reports whether an instance has been unready for longer than its group tolerates, so that budgets no
// longer protect it. It returns true if the group's spec has no toleration.not_ready. The instance must not be ready.
func (s *State) unreadyLong(inst *Instance) bool {
	policy, ok := s.Policy(inst.Group)
	if !ok || policy.Toleration.NotReady == nil {
		return ok
	}
	return s.Now > inst.Marks.UnreadySince.Add(*policy.Toleration.NotReady)
}

// startOverdue reports whether an instance that is not ready yet has used up its start timeout.
func (s *State) startOverdue(inst *Instance) bool {
	starting := inst.Status.Observed == model.ObservedPending || inst.Status.Observed == model.ObservedBooting
	return starting && s.Now >= max(inst.Marks.Created, inst.Marks.UnreadySince).Add(s.Settings.StartTimeout)
}

// spendRate counts a voluntary stop, which begins now, in every rate that applies to it. Stops of pending, failed and
// lost instances use up no rate.
func (s *State) spendRate(inst *Instance, c *InstanceStop) {
	if !c.Cause.Voluntary() {
		return
	}
	switch inst.Status.Observed {
	case model.ObservedLost, model.ObservedFailed, model.ObservedPending:
		return
	}
	if s.goesWithNode(inst, c.Cause) {
		s.spendActor(c.Cause.StoppedBy())
		return
	}
	if g, ok := s.Groups.Get(inst.Group); ok && g.Budget.RateMax > 0 {
		next := *g
		next.Stops = noteStop(g.Stops, g.Budget.RateMax, g.Budget.Window, s.Now)
		s.putGroup(&next)
	}
	for _, b := range s.SharedBudgets(inst.Group) {
		if b.Resolved.RateMax > 0 {
			next := *b
			next.Stops = noteStop(b.Stops, b.Resolved.RateMax, b.Resolved.Window, s.Now)
			s.putBudget(&next)
			s.touchBudget(next.Name)
		}
	}
	s.spendActor(c.Cause.StoppedBy())
}
