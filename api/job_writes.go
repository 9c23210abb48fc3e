package api

import (
	"github.com/outspan/outspan/model"
)

// JobValidation is a spec with every default filled in.
type JobValidation struct {
	Job      model.JobSpec `json:"job"`
	Warnings []string      `json:"warnings"`

	Budgets []model.BudgetLine `json:"budgets" doc:"what the budgets of its groups come to"`
}
