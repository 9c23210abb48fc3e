package model_test

import (
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// A group with auto_revert but without a check gets a warning, and a default for min_healthy. A group that sets
// min_healthy keeps its value and gets no warning.
func TestAutoRevertWithoutACheck(t *testing.T) {
	check := []model.CheckSpec{{Name: "alive", Kind: model.CheckTCP, Port: "http"}}
	tests := []struct {
		name   string
		group  model.GroupSpec
		want   model.Duration
		warned bool
	}{
		{name: "auto_revert alone", group: model.GroupSpec{Update: model.UpdateSpec{AutoRevert: true}},
			want: 5 * model.Second, warned: true},
		{name: "with a short deadline",
			group: model.GroupSpec{Update: model.UpdateSpec{AutoRevert: true, Deadline: 4 * model.Second}},
			want:  2 * model.Second, warned: true},
		{name: "with min_healthy", group: model.GroupSpec{Update: model.UpdateSpec{AutoRevert: true, MinHealthy: 1}},
			want: 1},
		{name: "with a check", group: model.GroupSpec{Update: model.UpdateSpec{AutoRevert: true}, Checks: check}},
		{name: "without auto_revert"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.group.Name = "http"
			job := model.JobSpec{Name: "web", Groups: []model.GroupSpec{tt.group}}
			if got := job.Expand().Groups[0].Update.MinHealthy; got != tt.want {
				t.Errorf("min_healthy is %s, want %s", got, tt.want)
			}
			warnings := job.Warnings()
			if (len(warnings) > 0) != tt.warned {
				t.Fatalf("warnings: %q", warnings)
			}
			if text := strings.Join(warnings, ""); tt.warned &&
				(!strings.Contains(text, "group http has auto_revert and no check") ||
					!strings.Contains(text, "Add a check block")) {
				t.Errorf("the warning does not say what to do: %s", text)
			}
		})
	}
}

// Without a check, a rollout continues even if the instances that it started have already exited. So a group of several
// instances gets a warning, unless it sets min_healthy or has the role system.
func TestSeveralInstancesWithoutACheck(t *testing.T) {
	tests := []struct {
		name   string
		group  model.GroupSpec
		warned bool
	}{
		{"two instances", model.GroupSpec{Count: 2}, true},
		{"one instance", model.GroupSpec{Count: 1}, false},
		{"with min_healthy", model.GroupSpec{Count: 2, Update: model.UpdateSpec{MinHealthy: 1}}, false},
		{"with a check",
			model.GroupSpec{Count: 2, Checks: []model.CheckSpec{{Name: "alive", Kind: model.CheckTCP, Port: "http"}}}, false},
		{"of the role system", model.GroupSpec{Count: 2, Role: model.RoleSystem}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.group.Name = "http"
			warnings := model.JobSpec{Name: "web", Groups: []model.GroupSpec{tt.group}}.Warnings()
			if (len(warnings) == 1) != tt.warned {
				t.Fatalf("warnings: %q", warnings)
			}
			if tt.warned &&
				(!strings.Contains(warnings[0], "group http has no check") ||
					!strings.Contains(warnings[0], "min_healthy = \"5s\"")) {
				t.Errorf("the warning does not say what to do: %s", warnings[0])
			}
		})
	}
}
