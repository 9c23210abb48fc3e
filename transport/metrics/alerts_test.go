package metrics_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/transport/httpapi"
)

// elsewhere lists the problems whose alert uses another metric than outspan_problems.
var elsewhere = map[api.ProblemCode]string{
	api.ProblemNoLeader:     "outspan_raft_is_leader",
	api.ProblemStateDiffers: "outspan_state_differs",
	api.ProblemHold:         "outspan_mass_offline_hold",
	api.ProblemPaused:       "outspan_actuation_paused",
	api.ProblemNodeOffline:  "outspan_nodes",
	api.ProblemUnplaced:     "outspan_unschedulable",
}

// Every problem that status shows has an alert, and no rule uses a metric that docs/metrics.md lacks.
func TestEachProblemHasAnAlert(t *testing.T) {
	rules, err := os.ReadFile("../../dist/prometheus/outspan.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range httpapi.ProblemCodes() {
		asked := `outspan_problems{code="` + string(code) + `"}`
		if other, ok := elsewhere[code]; ok {
			asked = other
		}
		if !strings.Contains(string(rules), asked) {
			t.Errorf("no alert asks for %s", asked)
		}
	}
	known := regexp.MustCompile("`(outspan_[a-z_]+)`").FindAllStringSubmatch(string(docs), -1)
	for _, name := range regexp.MustCompile(`outspan_[a-z_]+`).FindAllString(string(rules), -1) {
		if !slices.ContainsFunc(known, func(m []string) bool { return m[1] == name }) {
			t.Errorf("a rule asks for %s, which docs/metrics.md does not have", name)
		}
	}
}
