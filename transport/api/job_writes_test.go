package api_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/outspan/outspan/fsm"
)

// The answer of a change to a job does not say why its instances wait, which the leader has yet to find; a dry run and every later look do.
func TestAnswerOfAJobWrite(t *testing.T) {
	r := newRig(t)
	r.world()
	r.waiting.Groups = map[fsm.GroupID]fsm.Blocker{"web/http": {Code: fsm.CodeNoMemory, Message: "2 nodes lack memory"}}
	scaled := func(count int, query string) map[string]any {
		return decode(t, must2(r.cli().Do(t.Context(), http.MethodPost, "/v1/jobs/web/scale", values(query), map[string]any{"count": count}))(t))["job"].(map[string]any)
	}
	for _, c := range []struct {
		what   string
		job    map[string]any
		reason string
	}{
		{"a dry run", scaled(7, "dry_run=true"), string(fsm.CodeNoMemory)},
		{"a change", scaled(7, ""), ""},
		{"no change", scaled(7, ""), string(fsm.CodeNoMemory)},
		{"a look", get(t, r.cli(), "/v1/jobs/web"), string(fsm.CodeNoMemory)},
	} {
		group := c.job["groups"].([]any)[0].(map[string]any)
		if reason := group["reason"]; reason != c.reason || group["pending"].(json.Number) == "0" {
			t.Errorf("%s: %v are pending for %v, want some for %v", c.what, group["pending"], reason, c.reason)
		}
	}
}
