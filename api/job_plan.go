package api

import (
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
