// Package draw configures the random cases of a package's property tests. Only tests import it.
package draw

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
)

// Main runs the tests of a package that has property tests, and returns the exit code for TestMain. By default the
// property tests draw the same cases in every run, so that a result does not depend on luck. With OUTSPAN_SIM=1 (make
// sim) they draw more cases, and different ones in every run. The flags -rapid.seed and -rapid.checks take precedence.
func Main(m *testing.M) int {
	if os.Getenv("OUTSPAN_SIM") == "" {
		if err := errors.Join(flag.Set("rapid.seed", "20261"), flag.Set("rapid.checks", cases)); err != nil {
			fmt.Fprintln(os.Stderr, "no property of these tests is drawn by rapid:", err)
			return 2
		}
	}
	return m.Run()
}
