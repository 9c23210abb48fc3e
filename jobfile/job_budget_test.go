package jobfile_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/jobfile"
	"github.com/outspan/outspan/model"
)

// The attribute budget names shared budgets, and the block budget defines the group's own budget. A group may have
// both.
func TestParseJobBudgets(t *testing.T) {
	tests := []struct {
		name, keys string
		shared     []model.BudgetName
		own        *model.BudgetSpec
	}{
		{name: "none"},
		{name: "one", keys: `budget = "db"`, shared: []model.BudgetName{"db"}},
		{name: "list", keys: `budget = ["db", "rack-1"]`, shared: []model.BudgetName{"db", "rack-1"}},
		{name: "both", keys: "budget = \"db\"\n budget {\n min_ready = \"50%\"\n }", shared: []model.BudgetName{"db"},
			own: &model.BudgetSpec{MinReady: &model.Amount{N: 50, Percent: true}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			src := "job \"web\" {\n group \"http\" {\n exec {\n command = \"/bin/web\"\n }\n" + tt.keys + "\n }\n}\n"
			spec, err := jobfile.Parse("web.hcl", []byte(src))
			if err != nil {
				t.Fatal(err)
			}
			g := spec.Groups[0]
			if diff := cmp.Diff(tt.shared, g.Budgets); diff != "" {
				t.Errorf("shared budgets (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.own, g.Budget); diff != "" {
				t.Errorf("own budget (-want +got):\n%s", diff)
			}
		})
	}
}
