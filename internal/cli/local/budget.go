package local

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// PreviewBudget describes the effect that a group's own budget would have in a cluster with the built-in classes.
func PreviewBudget(g *model.GroupSpec, job model.JobName, class model.ClassName) model.BudgetLine {
	return fsm.PreviewBudget(g, job, class)
}
