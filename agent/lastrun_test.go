package agent

import (
	"os"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// If the agent's last run ended without a shutdown, beginRun returns when that run began, its last sign of life, and
// whether the machine was rebooted since.
func TestLastRun(t *testing.T) {
	h, err := openHome(t.TempDir(), hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	begin := func(boot string) *unclean {
		t.Helper()
		before, err := h.beginRun(boot)
		if err != nil {
			t.Fatal(err)
		}
		return before
	}
	if before := begin("boot1"); before != nil {
		t.Fatalf("the first run has one before it: %+v", before)
	}
	began, alive := time.Unix(1_700_000_000, 0), time.Unix(1_700_000_900, 0)
	for name, at := range map[string]time.Time{"run": began, "self-check": alive} {
		if name == "self-check" {
			if err := os.WriteFile(h.path(name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(h.path(name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if before := begin("boot1"); before == nil || !before.began.Equal(began) ||
		!before.lastSign.Equal(alive) || before.rebooted {
		t.Errorf("after a kill: %+v", before)
	}
	if before := begin("boot2"); before == nil || !before.rebooted {
		t.Errorf("after a power cut: %+v", before)
	}
	if err := h.endRun(); err != nil {
		t.Fatal(err)
	}
	if before := begin("boot2"); before != nil {
		t.Errorf("after a shutdown: %+v", before)
	}
}
