package cluster

import (
	"flag"
	"os"
	"testing"
)

// TestMain has properties draw the same cases each time, so that whether a change is good doesn't depend on luck; with OUTSPAN_SIM=1 (make sim) they draw new
// ones, and more of them. The flags -rapid.seed and -rapid.checks still count.
func TestMain(m *testing.M) {
	if os.Getenv("OUTSPAN_SIM") == "" {
		_ = flag.Set("rapid.seed", "20261")
		_ = flag.Set("rapid.checks", "60")
	}
	os.Exit(m.Run())
}
