package cli

import (
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// People read why, not the id of something that they would have to look up.
func TestReasonsAreWords(t *testing.T) {
	const drain = "01KAZZZZZZZZZZZZZZZZZZZZZZ"
	for _, tt := range []struct {
		cause        model.Cause
		reason, want string
	}{
		{"", "crash_loop", "crash_loop"},
		{model.CauseNodeDraining, drain, "drain " + drain},
		{model.CauseNodeDraining, drain + "; no replacement came", "drain " + drain + "; no replacement came"},
		{model.CauseNodeDraining, "exited", "exited"},
		{model.CauseDrainTimeout, "budget bypassed: " + drain, "budget bypassed: drain " + drain + " is out of time"},
		{model.CausePreempted, "3k9f2m", "makes room for instance 3k9f2m"},
		{model.CauseScaleDown, "its grace is over", "its grace is over"},
	} {
		if got := reasonText(api.Instance{StopCause: tt.cause, Reason: tt.reason}); got != tt.want {
			t.Errorf("%s %q: %q, want %q", tt.cause, tt.reason, got, tt.want)
		}
	}
}

// An event says why a status changed: fenced is no more to be looked for with -o wide.
func TestEventsSayWhy(t *testing.T) {
	data := map[string]string{"before": "ready", "after": "failed", "reason": "fenced"}
	e := api.Event{Type: model.EventStatus, Data: data}
	if got := whyChanged(e); got != "ready -> failed (fenced)" {
		t.Errorf("got %q", got)
	}
	data = map[string]string{"before": "draining", "after": "failed", "reason": "the deadline passed"}
	if got := whyChanged(api.Event{Type: model.EventDrainPhase, Data: data}); got != "draining -> failed (the deadline passed)" {
		t.Errorf("got %q", got)
	}
	data = map[string]string{"before": "s1", "after": "s2", "server": "01B", "term": "7"}
	if got := whyChanged(api.Event{Type: model.EventLeader, Data: data}); got != "s1 -> s2 (term 7)" {
		t.Errorf("got %q", got)
	}
	if got := whyChanged(api.Event{Type: model.EventSettings, Data: map[string]string{"offline_after": "30s -> 1m"}}); got != "offline_after=30s -> 1m" {
		t.Errorf("got %q", got)
	}
}
