package fsm

import (
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// The text about a budget says in words how many instances may be down, and by which rule.
func TestBudgetInWords(t *testing.T) {
	rate, two := &model.RateSpec{Max: 2, Window: model.Minute}, &model.Amount{N: 2}
	for want, spec := range map[string]*model.BudgetSpec{
		"3 of 4 must be ready, 1 may be down (class production: max_down 25% of 4, at least 1)": nil,
		"2 of 4 must be ready, 2 may be down (max_down 2)":                                      {MaxDown: two},
		"4 of 4 must be ready, 0 may be down (min_ready 80% of 4, rounded up); blocking": {
			MinReady: &model.Amount{N: 80, Percent: true}, Blocking: true},
		"3 of 4 must be ready, 1 may be down (max_down 30% of 4, rounded down); at most 2 within 1m": {
			MaxDown: &model.Amount{N: 30, Percent: true}, Rate: rate},
	} {
		g := model.GroupSpec{Name: "api", Count: 4, Budget: spec}
		if got := PreviewBudget(&g, "web", model.ClassProduction).Text; got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	ofClass := "3 of 4 must be ready, 1 may be down (class production: max_down 25% of 4, at least 1)"
	for _, c := range []struct {
		name   string
		class  model.ClassName
		budget *model.BudgetSpec
		shared []model.BudgetName
		want   string
	}{
		{"a shared budget alone", model.ClassProduction, nil, []model.BudgetName{"rack"}, "any number may be down"},
		{"a rate beside a shared budget", model.ClassProduction, &model.BudgetSpec{Rate: rate}, []model.BudgetName{"rack"},
			ofClass + "; at most 2 within 1m"},
		{"a class of the cluster", "gold", nil, nil, "as the cluster's class gold says"},
		{"a rate and a class of the cluster", "gold", &model.BudgetSpec{Rate: rate}, nil, "as the cluster's class gold says"},
		{"a number and a class of the cluster", "gold", &model.BudgetSpec{MaxDown: two}, nil,
			"2 of 4 must be ready, 2 may be down (max_down 2)"},
		{"a shared budget and a class of the cluster", "gold", nil, []model.BudgetName{"rack"}, "any number may be down"},
	} {
		g := model.GroupSpec{Name: "api", Count: 4, Budget: c.budget, Budgets: c.shared}
		if got := PreviewBudget(&g, "web", c.class).Text; got != c.want {
			t.Errorf("%s:\ngot  %q\nwant %q", c.name, got, c.want)
		}
	}
}

// A min_ready above the count lets no instance be down. The text about the budget warns of this. A min_ready of 100 %
// gets no warning.
func TestMinReadyAboveTheCountIsTold(t *testing.T) {
	for _, c := range []struct {
		amount model.Amount
		told   bool
	}{
		{model.Amount{N: 5}, true}, {model.Amount{N: 3}, false}, {model.Amount{N: 100, Percent: true}, false},
	} {
		g := model.GroupSpec{Name: "api", Count: 3, Budget: &model.BudgetSpec{MinReady: &c.amount}}
		text := PreviewBudget(&g, "web", model.ClassProduction).Text
		if got := strings.Contains(text, "min_ready is more than the count"); got != c.told {
			t.Errorf("min_ready %s of 3: %q", c.amount, text)
		}
	}
}
