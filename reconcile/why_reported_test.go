package reconcile

import (
	"testing"

	"github.com/outspan/outspan/model"
)

func TestReportedOfAnInstance(t *testing.T) {
	seven := 7
	tests := []struct {
		status model.InstanceStatus
		want   string
	}{
		{model.InstanceStatus{}, ""},
		{model.InstanceStatus{Reason: "check_failed"}, " (check_failed)"},
		{model.InstanceStatus{Reason: "crash_loop", ExitCode: &seven, Restarts: 3},
			" (crash_loop, last exit code 7, restarts: 3)"},
	}
	for _, tt := range tests {
		if got := reported(&tt.status); got != tt.want {
			t.Errorf("of %+v: %q, want %q", tt.status, got, tt.want)
		}
	}
}
