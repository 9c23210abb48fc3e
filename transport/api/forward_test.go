package api_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// passing counts the requests that are with another server, and holds them back until hold is closed, if there is one.
type passing struct {
	http.RoundTripper
	mu        sync.Mutex
	now, most int
	hold      chan struct{}
}

func (p *passing) RoundTrip(req *http.Request) (*http.Response, error) {
	p.mu.Lock()
	p.now++
	p.most = max(p.most, p.now)
	hold := p.hold
	p.mu.Unlock()
	if hold != nil {
		<-hold
	}
	defer func() {
		p.mu.Lock()
		p.now--
		p.mu.Unlock()
	}()
	return p.RoundTripper.RoundTrip(req)
}

func (p *passing) there() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// Calls of agents that go on to the leader take turns, so that a burst of them stays on one connection; none is lost.
func TestAgentsTakeTurnsToTheLeader(t *testing.T) {
	r := newRig(t, "s1", "s2")
	r.world()
	p := r.servers["s2"].passing
	p.mu.Lock()
	p.hold = make(chan struct{})
	p.mu.Unlock()
	c := r.client(transport.RoleAgent, "n2", "s2")
	const calls = 200
	failed := make(chan error, calls)
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() {
			_, err := c.Report(t.Context(), transport.ReportRequest{Node: "01N2", Epoch: 1, FactsGen: 1, Instances: []fsm.InstanceStatus{}})
			failed <- err
		})
	}
	for deadline := time.Now().Add(10 * time.Second); p.there() < 64 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond) // the others would be there by now
	if n := p.there(); n != 64 {
		t.Errorf("%d calls are with the leader at once, want 64", n)
	}
	close(p.hold)
	wg.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			t.Fatal(err)
		}
	}
	if p.most != 64 {
		t.Errorf("at most %d calls were with the leader at once, want 64", p.most)
	}
}
