package invariant

import (
	"strings"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// The judge reads a short past after each entry, and a long one only at multiples of fewPast. A damaged row of the past
// must be found then.
func TestJudgeReadsThePast(t *testing.T) {
	for _, test := range []struct {
		name  string
		long  bool
		index uint64
		want  bool
	}{
		{"a short past", false, 7*fewPast + 1, true},
		{"a long past", true, 7*fewPast + 1, false},
		{"a long past at a multiple", true, 7 * fewPast, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newHistoryFixture(t)
			entry := fsm.Entry{Format: model.CurrentFormat, At: d.state.Now + 10, Actor: "cli:x", Request: "r1", Body: "b",
				Groups: [][]fsm.Command{{&fsm.NodeIntent{ID: "n2", Intent: model.IntentCordoned}}}}
			d.state, _ = d.state.Apply(d.state.Index+1, 1, entry)
			if test.long {
				var toggles []fsm.Command
				for range fewPast / 2 {
					toggles = append(toggles, &fsm.NodeIntent{ID: "n1", Intent: model.IntentCordoned},
						&fsm.NodeIntent{ID: "n1", Intent: model.IntentActive})
				}
				d.entry("cli:x", toggles...)
			}
			row, ok := d.state.Requests.Get("r1")
			if past := d.state.Events.Len() + d.state.Requests.Len(); !ok || past > fewPast != test.long {
				t.Fatalf("the past has %d rows; the request is in it: %v", past, ok)
			}
			row.Index = 1 << 40
			s := d.entry("cli:x", &fsm.NodeIntent{ID: "n2", Intent: model.IntentActive})
			s.Index = test.index
			found := false
			for _, finding := range d.judge.Step(s) {
				found = found || strings.Contains(finding.String(), "request r1 is of index")
			}
			if found != test.want {
				t.Errorf("found the damaged request: %v, want %v", found, test.want)
			}
		})
	}
}
