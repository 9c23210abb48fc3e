package fsm

import (
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// A min_ready above the count keeps all instances. The text about the budget says so, and what to change.
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
