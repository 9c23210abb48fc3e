// Package draw decides what the properties of a package's tests draw. Only tests import it.
package draw

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
)

// Main runs the tests of a package whose properties draw the same cases each time, so that whether a change is good
// doesn't depend on luck; with OUTSPAN_SIM=1 (make sim) they draw new ones, and more of them. The flags -rapid.seed and
// -rapid.checks still count. It returns the exit code for TestMain.
func Main(m *testing.M) int {
	if os.Getenv("OUTSPAN_SIM") == "" {
		if err := errors.Join(flag.Set("rapid.seed", "20261"), flag.Set("rapid.checks", "60")); err != nil {
			fmt.Fprintln(os.Stderr, "no property of these tests is drawn by rapid:", err)
			return 2
		}
	}
	return m.Run()
}
