package cluster

import (
	"testing"
	"testing/synctest"
	"time"
)

// inBubble runs a test in fake time. memberlist's goroutines wait for a last timeout after its shutdown, but a bubble's
// clock stops once the test has returned. So inBubble lets a minute pass first.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) })
		test(t)
	})
}

// eventually waits, in fake time or real, until ok returns true.
func eventually(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, limit)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
