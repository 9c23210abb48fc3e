package reconcile_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain has properties draw the same cases each time, so that whether a change is good doesn't depend on luck; with OUTSPAN_SIM=1 (make sim) they draw new
// ones. A flag -rapid.seed still counts.
func TestMain(m *testing.M) {
	if os.Getenv("OUTSPAN_SIM") == "" {
		_ = flag.Set("rapid.seed", "20261")
	}
	os.Exit(m.Run())
}
