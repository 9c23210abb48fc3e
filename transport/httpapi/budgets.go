package httpapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

func (r *reading) groupBudget(g *fsm.Group) api.Budget {
	l := r.GroupLedger(g)
	v := r.budgetOf(&l, model.ScopeGroup, []model.GroupID{g.ID})
	for _, b := range r.SharedBudgets(g.ID) {
		v.Shared = append(v.Shared, string(b.Name))
	}
	if lines := r.BudgetLines(g.ID); len(lines) > 0 {
		v.Text = lines[0].Text
	}
	if policy, ok := r.Policy(g.ID); ok && policy.Budget != nil {
		v.Spec, v.Blocking = *policy.Budget, policy.Budget.Blocking
	}
	return v
}

func (r *reading) sharedBudget(b *fsm.SharedBudget) api.Budget {
	l := r.SharedLedger(b)
	v := r.budgetOf(&l, model.ScopeShared, b.Groups)
	v.Spec, v.Blocking, v.Text = b.Spec, b.Spec.Blocking, b.Line(&r.State).Text
	return v
}

func (r *reading) budgetOf(l *fsm.Ledger, scope string, groups []model.GroupID) api.Budget {
	v := api.Budget{
		Name: l.Name, Scope: scope, Want: l.Want, MinReady: l.Budget.MinReady, MaxDown: l.Budget.MaxDown, Ready: l.Ready,
		Held: l.Held, Unheard: l.Unheard,
		Down: r.down(l, groups), Allowed: l.Allowed(r.now), Groups: notNil(groups), Shared: []string{},
	}
	if l.Budget.RateMax > 0 {
		v.Rate = &api.BudgetRate{Max: l.Budget.RateMax, Window: l.Budget.Window, Used: l.Used(r.now),
			NextAllowed: r.wallOf(l.Next())}
	}
	return v
}

// actorBudget returns the rate limit of one kind of actor in the form of a budget.
func (r *reading) actorBudget(k model.StopOrigin, rate model.ActorRate) api.Budget {
	used := r.UsedBy(k)
	return api.Budget{
		Name: string(k), Scope: "actor", Allowed: max(0, rate.Max-used), Groups: []model.GroupID{}, Shared: []string{},
		Down: api.BudgetDown{ByCause: map[model.Cause]int{}},
		Rate: &api.BudgetRate{Max: rate.Max, Window: rate.Window, Used: used, NextAllowed: r.wallOf(r.NextOf(k))},
		Text: "from the setting " + k.Setting(),
	}
}

// wallOf converts a cluster time to wall time for people. It returns nil if t has passed or is model.Never.
func (r *reading) wallOf(t model.Time) *time.Time {
	if t <= r.now || t == model.Never {
		return nil
	}
	at := r.wall.Add(time.Duration(t.Sub(r.now)) * time.Millisecond).UTC().Truncate(time.Millisecond)
	return &at
}

// down counts the missing instances by cause, at most as many as the budget lacks. It counts instances that are
// certainly down first, then those that are leaving, then those that are starting. So a replacement that starts beside
// a running instance does not count as a loss.
func (r *reading) down(l *fsm.Ledger, groups []model.GroupID) api.BudgetDown {
	v := api.BudgetDown{ByCause: map[model.Cause]int{}}
	missing := max(0, l.Want-l.Ready)
	note := func(cause model.Cause) {
		switch {
		case v.Voluntary+v.Involuntary >= missing:
			return
		case cause.Voluntary() || cause == model.CauseNodeDisabled:
			v.Voluntary++
		default:
			v.Involuntary++
		}
		v.ByCause[cause]++
	}
	var leaving, coming []model.Cause
	for _, id := range groups {
		for i := range r.InstancesOf(id) {
			switch {
			case i.Desired == model.DesiredDraining && i.Marks.StopCause != model.CauseScaleDown &&
				i.Marks.StopCause != model.CauseJobStopped:
				leaving = append(leaving, i.Marks.StopCause)
			case i.Desired != model.DesiredRunning || i.Ready():
			case i.Status.Observed == model.ObservedPending || i.Status.Observed == model.ObservedBooting:
				if i.Cause != model.CauseScaleUp {
					coming = append(coming, i.Cause)
				}
			default:
				note(lossOf(i))
			}
		}
	}
	for _, cause := range append(leaving, coming...) {
		note(cause)
	}
	return v
}

// lossOf returns the cause for which an instance that should run is not ready.
func lossOf(i *fsm.Instance) model.Cause {
	switch reason := model.Cause(i.Status.Reason); {
	case i.Status.Observed == model.ObservedLost:
		return model.CauseNodeOffline
	case i.Status.Observed == model.ObservedUnready:
		return model.CauseCheckFailed
	case reason.Valid():
		return reason
	}
	return model.CauseCrashLoop
}

type budgetList struct{ ListParams }

type groupBudgetRead struct {
	ReadParams
	Job   string `path:"job"`
	Group string `path:"group"`
}

// BudgetPath is the part of a path that names a shared budget.
type BudgetPath struct {
	Name string `path:"name" doc:"of a shared budget"`
}

type budgetRead struct {
	ReadParams
	BudgetPath
}

type budgetInput struct {
	WriteParams
	BudgetPath
	Input model.BudgetSpec
}

func (in *budgetInput) body() any { return &in.Input }

type budgetRemoval struct {
	WriteParams
	BudgetPath
}

func (s *Server) budgetOperations() []operation {
	return []operation{
		list(s,
			getRoute("list-budgets", "/v1/budgets", "budgets",
				"List the budgets of groups, the shared ones, and the rates of actors"), listing[budgetList, api.Budget]{
				topics: topics[budgetList]("jobs", "budgets", "settings"), rows: listBudgets,
			}),
		read(s, getRoute("get-group-budget", "/v1/budgets/{job}/{group}", "budgets", "Show the budget of a group"),
			func(_ *reading, in *groupBudgetRead) []fsm.Topic { return []fsm.Topic{"job/" + fsm.Topic(in.Job)} },
			showGroupBudget),
		read(s, getRoute("get-budget", "/v1/budgets/{name}", "budgets", "Show a shared budget"),
			topics[budgetRead]("jobs", "budgets"), showBudget),
		write(s, route{id: "set-budget", method: http.MethodPut, path: "/v1/budgets/{name}", tag: "budgets",
			summary: "Make or replace a shared budget"}, setBudget()),
		write(s, route{id: "remove-budget", method: http.MethodDelete, path: "/v1/budgets/{name}", tag: "budgets",
			summary: "Remove a shared budget that no group names"}, removeBudget()),
	}
}

// Prefixes of the keys in the list of budgets. Budgets of groups are listed first, then shared budgets, then the rates
// of actors.
const (
	groupKeys  = "1"
	sharedKeys = "2"
	actorKeys  = "3"
)

func listBudgets(r *reading, _ *budgetList, from string, yield func(string, api.Budget) bool) error {
	if from < sharedKeys {
		for id, g := range r.Groups.From(model.GroupID(strings.TrimPrefix(from, groupKeys))) {
			if r.budgeted(g) && !yield(groupKeys+string(id), r.groupBudget(g)) {
				return nil
			}
		}
	}
	if from < actorKeys {
		first, _ := strings.CutPrefix(from, sharedKeys)
		if from < sharedKeys {
			first = ""
		}
		for name, b := range r.Budgets.From(model.BudgetName(first)) {
			if !yield(sharedKeys+string(name), r.sharedBudget(b)) {
				return nil
			}
		}
	}
	for _, k := range model.StopOrigins() {
		rate := r.Settings.ActorRate(k)
		if key := actorKeys + string(k); rate.Max > 0 && !yield(key, r.actorBudget(k, rate)) {
			return nil
		}
	}
	return nil
}

// budgeted reports whether the list shows a group's budget. It omits removed groups and groups of stopped jobs.
func (r *reading) budgeted(g *fsm.Group) bool {
	job, _ := g.ID.Split()
	j, ok := r.Jobs.Get(job)
	return ok && !j.Stopped && !g.Removed
}

func showGroupBudget(_ context.Context, r *reading, in *groupBudgetRead) (api.Budget, error) {
	g, ok := r.Groups.Get(model.NewGroupID(model.JobName(in.Job), in.Group))
	if !ok {
		return api.Budget{}, r.noSubject("group", in.Job+"/"+in.Group, "list budgets with: outspan budget ls")
	}
	return r.groupBudget(g), nil
}

func showBudget(_ context.Context, r *reading, in *budgetRead) (api.Budget, error) {
	b, ok := r.Budgets.Get(model.BudgetName(in.Name))
	if !ok {
		return api.Budget{}, model.Refuse(model.CodeNotFound, "there is no shared budget %s", clip(in.Name)).
			WithHint("list budgets with: outspan budget ls; the budget of a group is JOB/GROUP")
	}
	return r.sharedBudget(b), nil
}

func setBudget() change[budgetInput, api.BudgetReply] {
	return change[budgetInput, api.BudgetReply]{
		prepare: func(_ *reading, in *budgetInput) ([]fsm.Command, error) {
			return []fsm.Command{&fsm.BudgetSet{Name: model.BudgetName(in.Name), Spec: in.Input}}, nil
		},
		answer: func(o *outcome, in *budgetInput) (api.BudgetReply, error) {
			reply := api.BudgetReply{Written: o.Written}
			if b, ok := o.Budgets.Get(model.BudgetName(in.Name)); ok {
				v := o.sharedBudget(b)
				reply.Budget = &v
			}
			return reply, nil
		},
	}
}

func removeBudget() change[budgetRemoval, api.BudgetReply] {
	return change[budgetRemoval, api.BudgetReply]{
		prepare: func(_ *reading, in *budgetRemoval) ([]fsm.Command, error) {
			return []fsm.Command{&fsm.BudgetRemove{Name: model.BudgetName(in.Name)}}, nil
		},
		answer: func(o *outcome, _ *budgetRemoval) (api.BudgetReply, error) {
			return api.BudgetReply{Written: o.Written}, nil
		},
	}
}
