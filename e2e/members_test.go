package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// proves that leadership moves on request, that a wiped server comes back as a new one, and that servers are removed and promoted
// without losing the majority; S4.
func testMembers(t *testing.T, c *cluster) {
	c.run(t, job{name: "web", count: 4})
	leader := c.leader(t)
	follower := without(c.servers, leader)[0]
	began := time.Now()
	c.must(t, "server", "transfer-leader", follower.name)
	if got := c.leader(t); got != follower {
		t.Errorf("leadership went to %s, want %s", got.name, follower.name)
	}
	t.Logf("leadership transferred in %s", time.Since(began).Round(time.Millisecond))

	wiped := without(c.servers, follower)[0]
	before := c.memberID(t, wiped)
	wiped.kill()
	if err := os.RemoveAll(wiped.data()); err != nil {
		t.Fatal(err)
	}
	wiped.start(t)
	waitFor(t, "the wiped server as a new one that votes", 2*patience, func() error {
		for _, m := range list[memberView](t, c, "/v1/members") {
			if m.Name == wiped.name && m.ID != before && m.Voter && m.State == "alive" {
				return nil
			}
		}
		return fmt.Errorf("%+v", list[memberView](t, c, "/v1/members"))
	})
	for _, m := range list[memberView](t, c, "/v1/members") {
		if m.ID == before {
			t.Logf("the old self of %s is still listed: %+v", wiped.name, m)
			c.must(t, "server", "remove", before)
		}
	}
	c.waitVoters(t, 3)
	c.waitReady(t, "web", 4)
	var j jobView
	if err := wiped.get("/v1/jobs/web?consistency=stale", &j); err != nil || j.Groups[0].Ready != 4 {
		t.Errorf("the new server knows %+v (%v)", j, err)
	}
}

func (c *cluster) memberID(t *testing.T, m *member) string {
	t.Helper()
	for _, one := range list[memberView](t, c, "/v1/members") {
		if one.Name == m.name {
			return one.ID
		}
	}
	t.Fatalf("there is no server %s", m.name)
	return ""
}
