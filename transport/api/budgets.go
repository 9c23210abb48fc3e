package api

import (
	"context"
	"time"

	"github.com/outspan/outspan/fsm"
)

// Budget is what a group can lose at once and per window, and what of it is used.
type Budget struct {
	Name     fsm.GroupID `json:"name"`
	Scope    string      `json:"scope" enum:"group"`
	Want     int         `json:"want" doc:"instances the group should have"`
	MinReady int         `json:"min_ready"`
	MaxDown  int         `json:"max_down"`
	Ready    int         `json:"ready"`
	Down     BudgetDown  `json:"down"`
	Allowed  int         `json:"allowed" doc:"stops that may begin now"`
	Rate     *BudgetRate `json:"rate" doc:"null: no rate"`
}

// BudgetDown is what is missing, by whose doing.
type BudgetDown struct {
	Voluntary   int `json:"voluntary" doc:"stopped by an operator, a drain or a rollout, and not yet replaced"`
	Involuntary int `json:"involuntary" doc:"failed, lost or unready"`
}

// BudgetRate is how many stops may begin in a window.
type BudgetRate struct {
	Max         int          `json:"max"`
	Window      fsm.Duration `json:"window"`
	Used        int          `json:"used"`
	NextAllowed *time.Time   `json:"next_allowed" doc:"null: now"`
}

func (r *reading) budget(g *fsm.Group) Budget {
	v := Budget{Name: g.ID, Scope: "group", Want: r.Want(g), MinReady: g.Budget.MinReady, MaxDown: g.Budget.MaxDown, Ready: g.Ready}
	missing := max(0, v.Want-g.Ready)
	for i := range r.InstancesOf(g.ID) {
		switch {
		case i.Desired == fsm.DesiredRunning && !i.Ready() && i.Status.Observed != fsm.ObservedPending && i.Status.Observed != fsm.ObservedBooting:
			v.Down.Involuntary++
		case i.Desired == fsm.DesiredDraining && voluntary(i.Marks.StopCause):
			v.Down.Voluntary++
		}
	}
	v.Down.Involuntary = min(v.Down.Involuntary, missing)
	v.Down.Voluntary = min(v.Down.Voluntary, missing-v.Down.Involuntary)
	v.Allowed = max(0, g.Ready-g.Budget.MinReady)
	if g.Budget.RateMax > 0 {
		v.Rate = r.budgetRate(g)
		v.Allowed = min(v.Allowed, max(0, v.Rate.Max-v.Rate.Used))
	}
	return v
}

func (r *reading) budgetRate(g *fsm.Group) *BudgetRate {
	v := &BudgetRate{Max: g.Budget.RateMax, Window: g.Budget.Window}
	for _, at := range g.Stops {
		if at.Add(g.Budget.Window) > r.now {
			v.Used++
		}
	}
	v.NextAllowed = r.nextAllowed(g)
	return v
}

// nextAllowed is when the group's rate allows another stop to begin; nil: now.
func (r *reading) nextAllowed(g *fsm.Group) *time.Time {
	next := r.NextStop(g)
	if next <= r.now {
		return nil
	}
	at := r.wall.Add(time.Duration(next.Sub(r.now)) * time.Millisecond).UTC().Truncate(time.Millisecond)
	return &at
}

func voluntary(c fsm.Cause) bool {
	switch c {
	case fsm.CauseRollout, fsm.CauseNodeDraining, fsm.CauseNodeDisabled, fsm.CauseUser:
		return true
	}
	return false
}

type budgetList struct{ ListParams }

type budgetRead struct {
	ReadParams
	Job   string `path:"job"`
	Group string `path:"group"`
}

func (s *Server) budgetOperations() []operation {
	return []operation{
		list(s, getRoute("list-budgets", "/v1/budgets", "budgets", "List the budgets of groups"), listing[budgetList, Budget]{
			topics: topics[budgetList]("jobs"),
			rows: func(r *reading, _ *budgetList, from string, yield func(string, Budget) bool) error {
				for id, g := range r.Groups.From(fsm.GroupID(from)) {
					if r.budgeted(g) && !yield(string(id), r.budget(g)) {
						break
					}
				}
				return nil
			},
		}),
		read(s, getRoute("get-budget", "/v1/budgets/{job}/{group}", "budgets", "Show the budget of a group"),
			func(in *budgetRead) []fsm.Topic { return []fsm.Topic{"job/" + fsm.Topic(in.Job)} }, showBudget),
	}
}

// budgeted leaves out groups that are on their way out.
func (r *reading) budgeted(g *fsm.Group) bool {
	job, _ := g.ID.Split()
	j, ok := r.Jobs.Get(job)
	return ok && !j.Stopped && !g.Removed
}

func showBudget(_ context.Context, r *reading, in *budgetRead) (Budget, error) {
	g, ok := r.Groups.Get(fsm.NewGroupID(fsm.JobName(in.Job), in.Group))
	if !ok {
		return Budget{}, fsm.Refuse(fsm.CodeNotFound, "there is no group %s/%s", clip(in.Job), clip(in.Group)).WithHint("list budgets with: outspan budget ls")
	}
	return r.budget(g), nil
}
