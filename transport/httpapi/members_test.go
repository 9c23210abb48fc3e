package httpapi

import (
	"encoding/json"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// The offset of a clock that is ahead or behind stays the same when it is encoded and decoded.
func TestClockOffset(t *testing.T) {
	for _, ahead := range []api.ClockOffset{0, 1, -1, api.ClockOffset(90 * model.Second),
		api.ClockOffset(-90 * model.Second)} {
		text, err := json.Marshal(api.Member{ClockAhead: ahead})
		if err != nil {
			t.Fatal(err)
		}
		var back api.Member
		if err := json.Unmarshal(text, &back); err != nil || back.ClockAhead != ahead {
			t.Errorf("%s reads back as %d: %v", text, back.ClockAhead, err)
		}
	}
}
