package fsm

import (
	"strings"
	"testing"
)

// A min_ready above the count is taken for the count, and plans say so with the way out.
func TestMinReadyAboveTheCountIsTold(t *testing.T) {
	for _, c := range []struct {
		amount Amount
		told   bool
	}{
		{Amount{N: 5}, true}, {Amount{N: 3}, false}, {Amount{N: 100, Percent: true}, false},
	} {
		g := GroupSpec{Name: "api", Count: 3, Budget: &BudgetSpec{MinReady: &c.amount}}
		text := PreviewBudget(&g, "web", ClassProduction).Text
		if got := strings.Contains(text, "min_ready is more than the count"); got != c.told {
			t.Errorf("min_ready %s of 3: %q", c.amount, text)
		}
	}
}
