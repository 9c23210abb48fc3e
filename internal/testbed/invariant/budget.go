package invariant

import (
	"maps"
	"slices"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// underBudget reports whether budgets limit stops with this cause. They limit voluntary stops, and the stops of ready
// instances by a scale-down.
func underBudget(cause model.Cause) bool { return cause.Voluntary() || cause == model.CauseScaleDown }

// goesWithNode reports whether an instance belongs to a system group and stops because its node is drained. The group
// then needs no instance on that node, so no budget limits the stop.
func (s *Step) goesWithNode(i *fsm.Instance) bool {
	g, ok := s.After.Groups.Get(i.Group)
	return ok && g.Role == model.RoleSystem && i.Marks.StopCause == model.CauseNodeDraining
}

// scope is a group's own budget or a shared budget, before and after the entry, with its groups.
type scope struct {
	name          string
	groups        []model.GroupID
	before, after model.Budget
}

// scopes lists the budgets of the groups for which lost is true. It skips groups and budgets that the entry created or
// deleted.
func (s *Step) scopes(lost map[model.GroupID]bool) []scope {
	var all []scope
	for _, id := range slices.Sorted(maps.Keys(lost)) {
		now, there := s.After.Groups.Get(id)
		was, known := s.Before.Groups.Get(id)
		if there && known {
			all = append(all, scope{"group/" + string(id), []model.GroupID{id}, was.Budget, now.Budget})
		}
	}
	for name, b := range s.After.Budgets.All() {
		old, known := s.Before.Budgets.Get(name)
		if !known {
			continue
		}
		for _, id := range b.Groups {
			if lost[id] {
				all = append(all, scope{"budget/" + string(name), b.Groups, old.Resolved, b.Resolved})
				break
			}
		}
	}
	return all
}

// readyOf counts the ready instances of groups: those that are desired running and observed ready, on a node that is
// not offline.
func readyOf(st *fsm.State, groups []model.GroupID) int {
	n := 0
	for _, id := range groups {
		for i := range st.InstancesOf(id) {
			if node, ok := st.Nodes.Get(i.Node); ok && node.Health != model.HealthOffline && i.Ready() {
				n++
			}
		}
	}
	return n
}

// budgets checks S3: no voluntary stop or scale-down takes the number of ready instances below min_ready. While fewer
// than min_ready instances are ready, an unready instance is stopped only by a scale-down, or after its group's
// toleration. Stops that an operator let bypass budgets are not judged. Commands of one entry see each other's effects,
// so all stops of the entry are judged together.
func (j *Judge) budgets(f *fsm.Findings, s *Step) {
	lost, ready, unready := map[model.GroupID]bool{}, map[model.GroupID]int{}, map[model.GroupID]model.InstanceID{}
	s.began(func(was, now *fsm.Instance) {
		if !ran(was, now) || Bypassed(now) || !underBudget(now.Marks.StopCause) || s.goesWithNode(now) {
			return
		}
		switch {
		case was.Ready():
			lost[now.Group] = true
			ready[now.Group]++
		case now.Marks.StopCause != model.CauseScaleDown && !tolerated(s, was):
			lost[now.Group] = true
			unready[now.Group] = now.ID
		}
	})
	if len(lost) == 0 {
		return
	}
	for _, b := range s.scopes(lost) {
		had, taken := readyOf(s.Before, b.groups), 0
		floor := min(b.before.MinReady, b.after.MinReady)
		for _, id := range b.groups {
			taken += ready[id]
			if one := unready[id]; one != "" && had < floor {
				f.Add(fsm.S3, "%s is not ready and was told to stop while %s had %d ready of the %d that must be",
					one, b.name, had, floor)
			}
		}
		if taken > 0 && had-taken < floor {
			f.Add(fsm.S3, "%d ready of %s were told to stop, %d are left of the %d that must be",
				taken, b.name, had-taken, floor)
		}
	}
}

// tolerated reports whether an unready instance may be stopped regardless of budgets, because its group's toleration
// not_ready has passed or the group has no such toleration.
func tolerated(s *Step, i *fsm.Instance) bool {
	policy, ok := s.Before.Policy(i.Group)
	return !ok || policy.Toleration.NotReady == nil || s.After.Now > i.Marks.UnreadySince.Add(*policy.Toleration.NotReady)
}

// window is a rate with the newest stops that were counted for the rate.
type window struct {
	most  int // maximum number of stops within the duration per; 0 means no limit
	per   model.Duration
	stops []model.Time
}

// rates checks S3 for the rates of groups, shared budgets and actors: within a window, at most as many voluntary stops
// begin as the rate allows, even if the leader changes during the window. Stops that bypass budgets are not counted.
func (j *Judge) rates(f *fsm.Findings, s *Step) {
	began := map[string][]model.Time{}
	s.began(func(was, now *fsm.Instance) {
		if ran(was, now) && now.Marks.StopCause.Voluntary() && !Bypassed(now) {
			if !s.goesWithNode(now) {
				began["group/"+string(now.Group)] = append(began["group/"+string(now.Group)], now.Marks.StopBegan)
			}
			if actor := now.Marks.StopCause.StoppedBy(); actor != "" {
				began["actor/"+string(actor)] = append(began["actor/"+string(actor)], now.Marks.StopBegan)
			}
		}
	})
	for _, actor := range model.StopOrigins() {
		r := s.After.Settings.ActorRate(actor)
		j.count(f, "actor/"+string(actor), r.Max, r.Window, false, began["actor/"+string(actor)])
	}
	for id, g := range s.After.Groups.All() {
		name := "group/" + string(id)
		j.count(f, name, g.Budget.RateMax, g.Budget.Window, !s.Before.Groups.Has(id), began[name])
	}
	for id, b := range s.After.Budgets.All() {
		var all []model.Time
		for _, g := range b.Groups {
			all = append(all, began["group/"+string(g)]...)
		}
		j.count(f, "budget/"+string(id), b.Resolved.RateMax, b.Resolved.Window, !s.Before.Budgets.Has(id), all)
	}
}

// count adds the stops of one entry to the window with this name, and checks the rate. fresh means that the rate's
// group or budget is new. If fresh is true or the rate has changed, the window starts empty, because the replicated
// state also keeps only the stops that the old rate needed.
func (j *Judge) count(f *fsm.Findings, name string, most int, per model.Duration, fresh bool, stops []model.Time) {
	w := j.windows[name]
	if w == nil || fresh || w.most != most || w.per != per {
		w = &window{most: most, per: per}
		j.windows[name] = w
	}
	if most == 0 {
		return
	}
	for _, at := range stops {
		w.stops = append(w.stops, at)
		if i := len(w.stops) - 1; i >= most {
			if gap := at.Sub(w.stops[i-most]); gap < per {
				f.Add(fsm.S3, "%s lost %d within %s, %d within %s are allowed", name, most+1, gap, most, per)
			}
		}
	}
	w.stops = w.stops[max(0, len(w.stops)-most-1):]
}

// unorderedStops is the number of stops in one entry that nobody ordered, with the entry's cluster time.
type unorderedStops struct {
	at model.Time
	n  int
}

// unordered checks S7 for stops that nobody ordered: stops by the rescheduler, and stops by a policy that a cordon
// triggered. Within a minute, at most 5 % of the instances that should run may be stopped in this way. One such stop is
// always allowed.
func (j *Judge) unordered(f *fsm.Findings, s *Step) {
	n := 0
	s.began(func(was, now *fsm.Instance) {
		cause := now.Marks.StopCause
		if ran(was, now) &&
			(cause == model.CauseRebalance || cause == model.CauseAffinity || now.Marks.StopReason == fsm.ByPolicy) {
			n++
		}
	})
	if n == 0 {
		return
	}
	j.rails = append(j.rails, unorderedStops{s.After.Now, n})
	total, running := 0, 0
	for _, r := range j.rails {
		if s.After.Now.Sub(r.at) < model.Minute {
			total += r.n
		}
	}
	for _, i := range s.Before.Instances.All() {
		if i.Desired == model.DesiredRunning {
			running++
		}
	}
	if limit := max(1, running*5/100); total > limit {
		f.Add(fsm.S7, "%d instances of %d were told to stop within a minute without anybody's order, %d may be",
			total, running, limit)
	}
}
