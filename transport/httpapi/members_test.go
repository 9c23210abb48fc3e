package httpapi

import (
	"encoding/json"
	"testing"

	"github.com/outspan/outspan/model"
)

// A clock that is behind is written with a sign, and read again.
func TestClockOffset(t *testing.T) {
	for _, ahead := range []ClockOffset{0, 1, -1, ClockOffset(90 * model.Second), ClockOffset(-90 * model.Second)} {
		text, err := json.Marshal(Member{ClockAhead: ahead})
		if err != nil {
			t.Fatal(err)
		}
		var back Member
		if err := json.Unmarshal(text, &back); err != nil || back.ClockAhead != ahead {
			t.Errorf("%s reads back as %d: %v", text, back.ClockAhead, err)
		}
	}
}
