package httpapi

import (
	"context"

	"github.com/outspan/outspan/model"
)

// JobPlan is what submitting a spec would do.
type JobPlan struct {
	Job     model.JobName  `json:"job"`
	Index   uint64         `json:"index" doc:"of the job: give it as if_index to submit only what was planned; 0: a new job"`
	Version uint64         `json:"version" doc:"it would have"`
	Changes bool           `json:"changes"`
	Groups  []PlannedGroup `json:"groups"`
}

// PlannedGroup is what submitting a spec would do to a group.
type PlannedGroup struct {
	Group         model.GroupID    `json:"group"`
	Created       int              `json:"created"`
	Destroyed     int              `json:"destroyed"`
	Kept          int              `json:"kept"`
	Unschedulable int              `json:"unschedulable" doc:"of those created: that no node can take now"`
	Code          model.Code       `json:"code"`
	Message       string           `json:"message"`
	Excluded      []model.Excluded `json:"excluded" doc:"nodes excluded by each rule"`

	Budgets  []model.BudgetLine `json:"budgets" doc:"what its budgets come to: percentages and defaults as numbers"`
	Preempts []model.InstanceID `json:"preempts" doc:"instances of less important classes that would stop to make room"`
}

type planInput struct {
	AskParams
	JobPath
	Input submitBody
}

func (in *planInput) body() any { return &in.Input }

func planJob(_ context.Context, r *reading, in *planInput) (JobPlan, error) {
	spec := in.Input.Job
	if string(spec.Name) != in.Name {
		return JobPlan{}, model.Refuse(model.CodeInvalid, "the path names job %q, the spec is of %q", clip(in.Name), clip(string(spec.Name)))
	}
	expanded := spec.Expand()
	if refusal := expanded.Check(); refusal != nil {
		return JobPlan{}, refusal
	}
	got, err := r.planner.Plan(r.question(), spec)
	if err != nil {
		return JobPlan{}, err
	}
	v := JobPlan{Job: got.Job, Index: got.Index, Version: got.Version, Changes: got.Changes, Groups: []PlannedGroup{}}
	for _, g := range got.Groups {
		v.Groups = append(v.Groups, PlannedGroup{
			Group: g.Group, Created: g.Created, Destroyed: g.Destroyed, Kept: g.Kept, Unschedulable: g.Unschedulable,
			Code: g.Code, Message: g.Message, Excluded: notNil(g.Excluded), Budgets: notNil(g.Budgets), Preempts: notNil(g.Preempts),
		})
	}
	return v, nil
}
