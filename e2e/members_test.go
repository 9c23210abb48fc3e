package e2e

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
)

// testMembers checks changes of membership (S4). Leadership moves on request, a wiped server joins as a new server, and
// a server is removed, joins again and is promoted.
func testMembers(t *testing.T, c *cluster) {
	c.run(t, job{name: "web", count: 4})
	leader := c.leader(t)
	follower := without(c.servers, leader)[0]
	began := time.Now()
	c.must(t, "server", "transfer-leader", follower.Name)
	if got := c.leader(t); got != follower {
		t.Errorf("leadership went to %s, want %s", got.Name, follower.Name)
	}
	t.Logf("leadership transferred in %s", time.Since(began).Round(time.Millisecond))

	wiped := without(c.servers, follower)[0]
	before := c.memberID(t, wiped)
	wiped.Kill()
	if err := os.RemoveAll(wiped.data()); err != nil {
		t.Fatal(err)
	}
	wiped.start(t)
	waitFor(t, "the wiped server as a new one that votes", 2*patience, func() error {
		for _, m := range list[memberView](t, c, "/v1/members") {
			if m.Name == wiped.Name && m.ID != before && m.Voter && m.State == "alive" {
				return nil
			}
		}
		return fmt.Errorf("%+v", list[memberView](t, c, "/v1/members"))
	})
	for _, m := range list[memberView](t, c, "/v1/members") {
		if m.ID == before {
			t.Logf("the old self of %s is still listed: %+v", wiped.Name, m)
			c.must(t, "server", "remove", before)
		}
	}
	c.waitVoters(t, 3)
	c.waitReady(t, "web", 4)
	c.removeAndReturn(t, wiped)
	var j jobView
	if err := wiped.get("/v1/jobs/web?consistency=stale", &j); err != nil || j.Groups[0].Ready != 4 {
		t.Errorf("the new server knows %+v (%v)", j, err)
	}
}

func (c *cluster) memberID(t *testing.T, m *member) string {
	t.Helper()
	for _, one := range list[memberView](t, c, "/v1/members") {
		if one.Name == m.Name {
			return one.ID
		}
	}
	t.Fatalf("there is no server %s", m.Name)
	return ""
}

// removeAndReturn first asserts that a removal is refused while another of the three servers is down. Then it removes a
// server, which joins again with an empty directory.
func (c *cluster) removeAndReturn(t *testing.T, m *member) {
	t.Helper()
	id := c.memberID(t, m)
	followers := without(c.servers, c.leader(t))
	down, up := followers[0], followers[1]
	down.Kill()
	waitFor(t, "notice that "+down.Name+" is dead", patience, func() error {
		for _, one := range list[memberView](t, c, "/v1/members") {
			if one.Name == down.Name && one.State != "alive" {
				return nil
			}
		}
		return errors.New("it is still alive")
	})
	c.refused(t, 5, []string{"no majority"}, "server", "remove", up.Name)
	down.start(t)
	c.waitVoters(t, 3)

	c.must(t, "server", "remove", m.Name)
	c.waitNoVote(t, id)
	m.Kill()
	if err := os.RemoveAll(m.data()); err != nil {
		t.Fatal(err)
	}
	m.start(t)
	waitFor(t, "the removed server as a new one", patience, func() error {
		for _, one := range list[memberView](t, c, "/v1/members") {
			switch {
			case one.Name != m.Name || one.ID == id || one.State != "alive":
			case one.Voter:
				return nil
			default: // the server would get its vote by itself, but later
				_ = c.cli(t, "server", "promote", one.ID)
			}
		}
		return fmt.Errorf("%+v", list[memberView](t, c, "/v1/members"))
	})
	c.waitVoters(t, 3)
}

// waitNoVote waits until the server with the given id has no vote or is removed.
func (c *cluster) waitNoVote(t *testing.T, id string) {
	t.Helper()
	waitFor(t, "loss of the vote of "+id, patience, func() error {
		var l struct{ Items []memberView }
		if err := c.get("/v1/members", &l); err != nil {
			return err
		}
		for _, one := range l.Items {
			if one.ID == id && one.Voter {
				return fmt.Errorf("%+v", l.Items)
			}
		}
		return nil
	})
}
