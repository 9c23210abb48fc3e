package e2e

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// Two evictions are requested at the same time, and the budget allows one. Exactly one request is accepted. The refusal
// of the other request names the budget.
// proves R20, R23, R33
func testEvict(t *testing.T, c *cluster) {
	c.run(t, job{name: "web", count: 4, args: []string{"--boot", "1s"}, more: "    budget { min_ready = 3 }"})
	stop := c.sample("web", "default")
	for round := range 3 {
		all := c.living(t, "web")
		var results [2]result
		var both sync.WaitGroup
		for i := range results {
			both.Go(func() { results[i] = c.cli(t, "instance", "evict", all[i].ID, "--json") })
		}
		both.Wait()
		accepted, refused := results[0], results[1]
		if accepted.code != 0 {
			accepted, refused = refused, accepted
		}
		if accepted.code != 0 || refused.code != 6 {
			t.Fatalf("round %d: of two evicts one has to be accepted and one refused: %v %v", round, results[0], results[1])
		}
		if f := refused.failure(t); f.Code != "budget_min_ready" || !f.Retryable || !strings.Contains(f.Message+f.Hint, "3") {
			t.Errorf("the refusal does not say what it waits for: %+v", f)
		}
		c.waitReady(t, "web", 4)
	}
	if seen := stop(); seen.ready < 3 || seen.alive < 3 {
		t.Errorf("the budget was broken: %v", seen)
	}
}

// If a budget's rate refuses a stop, the refusal says when the next stop is allowed.
// proves R22
func testEvictRate(t *testing.T, c *cluster) {
	const window = 8 * time.Second
	c.run(t,
		job{name: "web", count: 3,
			more: "    budget {\n      min_ready = 1\n" +
				"      rate {\n        max    = 1\n        window = \"8s\"\n      }\n    }"})
	all := c.living(t, "web")
	began := time.Now()
	c.must(t, "instance", "evict", all[0].ID)
	r := c.cli(t, "instance", "evict", all[1].ID, "--json")
	r.want(t, 6)
	f := r.failure(t)
	var b budgetView
	c.mustJSON(t, &b, "budget", "status", "web/http")
	if b.Rate == nil || b.Rate.Used != 1 || b.Rate.NextAllowed == nil || b.Allowed != 0 {
		t.Fatalf("budget: %+v", b)
	}
	if wait := b.Rate.NextAllowed.Sub(began); wait < window-time.Second || wait > window+2*time.Second {
		t.Errorf("the next stop is allowed %s after the first, want about %s", wait, window)
	}
	if f.Code != "budget_rate" || !f.Retryable || !strings.Contains(f.Message, "1 per 8s; the next is allowed in ") {
		t.Errorf("the refusal does not tell the next allowed time: %+v", f)
	}
	waitFor(t, "the time that was named", patience, func() error {
		if left := time.Until(*b.Rate.NextAllowed); left > 0 {
			return errNever
		}
		return nil
	})
	c.must(t, "instance", "evict", all[1].ID)
}
