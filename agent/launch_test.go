package agent

import (
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// An instance whose job file sets no process limit gets the default limit.
func TestProcessesAreLimited(t *testing.T) {
	for pids, want := range map[int64]int64{0: defaultPids, 50: 50, 100_000: 100_000} {
		a := transport.Assignment{Spec: &model.GroupSpec{Resources: model.Resources{Pids: pids}}}
		if got := limits(a).PidsMax; got != want {
			t.Errorf("pids = %d in the job file: %d processes are allowed, want %d", pids, got, want)
		}
	}
}
