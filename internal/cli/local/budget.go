package local

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// PreviewBudget says what a group's own budget will come to in a cluster whose classes are the built-in ones.
func PreviewBudget(g *model.GroupSpec, job model.JobName, class model.ClassName) model.BudgetLine {
	return fsm.PreviewBudget(g, job, class)
}
