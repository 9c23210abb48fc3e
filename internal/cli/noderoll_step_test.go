package cli

import (
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// A roll must not take back a node that another drain than its own drains.
func TestRollInOtherDrain(t *testing.T) {
	for _, test := range []struct {
		intent model.Intent
		drain  model.DrainID
		want   bool
	}{
		{model.IntentDraining, "R1.1.1", false},
		{model.IntentDraining, "other", true},
		{model.IntentActive, "other", false},
	} {
		n := api.Node{DrainID: test.drain}
		n.Intent = test.intent
		if got := inOtherDrain(n, "R1.1.1"); got != test.want {
			t.Errorf("%s in %s: got %v", test.intent, test.drain, got)
		}
	}
}
