// Package draw decides how many cases the property tests of a package draw, and how long its tests idle. Only tests
// import it.
package draw

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
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

// Idle returns how long a test lets a cluster idle: d, or a tenth of it under the race detector.
func Idle(d time.Duration) time.Duration {
	if Race {
		return d / 10
	}
	return d
}
