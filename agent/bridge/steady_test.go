package bridge

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// A container answers all the time while others beside it start and end, and while a new process takes its network
// over. The bridge keeps its hardware address, which the containers remember.
func TestSteadyBesideOthers(t *testing.T) {
	dir := t.TempDir()
	n := open(t, dir, "n1")
	connect(t, n, "a", Mapping{8001, 80})
	before, err := net.InterfaceByName(n.Device())
	if err != nil {
		t.Fatal(err)
	}
	sent, lost := 0, []string{}
	quit, asking := make(chan struct{}), sync.WaitGroup{}
	asking.Go(func() {
		for ; ; sent++ {
			select {
			case <-quit:
				return
			case <-time.After(5 * time.Millisecond):
			}
			began := time.Now()
			if got := askWithin("192.0.2.1:8001", 5*time.Second); got != "a" {
				lost = append(lost, fmt.Sprintf("%q after %s", got, time.Since(began)))
			}
		}
	})
	for round := range 2 {
		for i := range 2 {
			connect(t, n, fmt.Sprintf("b%d-%d", round, i), Mapping{uint16(8010 + i), 80})
		}
		if made, err := n.Repair(t.Context()); err != nil || made > 0 {
			t.Errorf("%d rules were made, %v", made, err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		n = open(t, dir, "n1")
		if err := n.Adopt("a"); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Sweep(t.Context(), func(id string) bool { return id == "a" }); err != nil {
			t.Fatal(err)
		}
	}
	close(quit)
	asking.Wait()
	if len(lost) > 0 || sent == 0 {
		t.Errorf("%d of %d requests got no answer: %v", len(lost), sent, lost[:min(5, len(lost))])
	}
	after, err := net.InterfaceByName(n.Device())
	if err != nil || after.HardwareAddr.String() != before.HardwareAddr.String() {
		t.Errorf("the bridge was %+v and is %+v, %v", before, after, err)
	}
}
