package daemon

import (
	"testing"
	"time"
)

func TestHeapMayGrowWhileBusy(t *testing.T) {
	for _, c := range []struct {
		live  uint64
		since time.Duration
		want  int
	}{
		{12 << 20, 100 * time.Millisecond, 133},       // grows to 28 MiB
		{12 << 20, 10 * time.Second, gcPercent},       // collections are rare enough already
		{40 << 20, 100 * time.Millisecond, gcPercent}, // the heap is large enough already
		{1, time.Millisecond, 2700},                   // calculated as if 1 MiB were in use
		{0, time.Millisecond, gcPercent},              // before the first collection
	} {
		if got := growth(c.live, c.since); got != c.want {
			t.Errorf("%d bytes in use after %s: %d %%, want %d", c.live, c.since, got, c.want)
		}
	}
}
