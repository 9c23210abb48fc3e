package cluster

import (
	"testing"
	"testing/synctest"
	"time"
)

// inBubble runs a test in fake time. A bubble's clock stops once the test has returned, but goroutines of memberlist
// still wait for a timeout after memberlist was shut down. So inBubble lets a minute pass before the test returns.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) })
		test(t)
	})
}

// eventually waits until ok returns true, in fake or real time. It fails the test after limit.
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
