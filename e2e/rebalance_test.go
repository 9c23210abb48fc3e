package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// moveView is one move that the rescheduler would make.
type moveView struct {
	Instance string `json:"instance"`
	Group    string `json:"group"`
	From     string `json:"from"`
	To       string `json:"to"`
	Cause    string `json:"cause"`
	Gain     int    `json:"gain"`
	Blocker  *struct {
		Code string `json:"code"`
	} `json:"blocker"`
}

// sleepers is a job whose instances only take room. The rescheduler does not move them, because their order is
// stop_first.
const sleepers = `job "sleepers" {
  group "main" {
    count = %d
    exec {
      command = "/bin/sleep"
      args    = ["100000"]
    }
    resources {
      memory = "8MiB"
    }
    eviction {
      order = "stop_first"
    }
  }
}
`

// A node that returns empty is filled again, with at most 5 moves per cycle of a minute, and no request fails. The
// moves stop when no further move would gain anything. While actuation is paused, the moves are shown but not made.
// proves R49, R54, R56, R57
func TestRebalance(t *testing.T) {
	long(t)
	t.Parallel()
	const jobs, perCycle = 7, 5
	c := startCluster(t, options{servers: 1, agents: 4, memory: "16GiB"})
	c.must(t, "settings", "set", "rescheduler=off", "rescheduler_min_age=1s", "rescheduler_cooldown=1s")
	port := c.freePort(t)
	for i := range jobs {
		j := job{name: fmt.Sprintf("web%d", i), count: 4}
		if i == 0 {
			j.expose = port
		}
		c.run(t, j)
	}
	c.must(t, "job", "run", c.writeText(t, "sleepers.hcl", fmt.Sprintf(sleepers, 20*perCycle-4*jobs)), "--detach")
	c.waitReady(t, "sleepers", 20*perCycle-4*jobs)

	n4 := c.agents[3]
	began := time.Now()
	n4.die(t)
	c.waitOffline(t, n4, began)
	for i := range jobs {
		c.waitReady(t, fmt.Sprintf("web%d", i), 4)
	}
	c.waitReady(t, "sleepers", 20*perCycle-4*jobs)
	n4.start(t)
	c.waitEligible(t, n4)
	waitFor(t, "n4 to be empty", patience, func() error {
		if n := c.node(t, n4); n.Instances != 0 {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})

	c.pausedShows(t, jobs)
	stop := c.probe(port, c.agents[:3]...)
	c.must(t, "settings", "set", "rescheduler=balanced")
	c.must(t, "settings", "resume")
	waitFor(t, "the end of the moves", 4*patience, func() error {
		n, living := len(c.moved(t)), list[instanceView](t, c, "/v1/instances?limit=1000")
		if n < jobs || len(living) != 20*perCycle {
			return fmt.Errorf("%d moves began, %d instances are alive", n, len(living))
		}
		return nil
	})
	probes := stop()
	moved := c.moved(t)
	t.Logf("%d moves in %s, %v", len(moved), moved[len(moved)-1].Time.Sub(moved[0].Time).Round(time.Second), probes)
	probes.perfect(t)
	c.checkMoves(t, moved, perCycle)
	for i := range jobs {
		name := fmt.Sprintf("web%d", i)
		if n := len(c.instancesOf(name, n4)); n != 1 {
			t.Errorf("n4 runs %d instances of %s, want 1", n, name)
		}
	}
	if l := c.wouldMove(t); len(l) > 0 {
		t.Errorf("everything is spread, and yet it would move %+v", l)
	}
}

// pausedShows asserts that the moves are shown while actuation is paused, and that no move begins.
func (c *cluster) pausedShows(t *testing.T, jobs int) {
	t.Helper()
	c.must(t, "settings", "pause")
	c.must(t, "settings", "set", "rescheduler=balanced")
	waitFor(t, "what would be moved", patience, func() error {
		l := c.wouldMove(t)
		if len(l) != jobs {
			return fmt.Errorf("%d moves are shown, want %d: %+v", len(l), jobs, l)
		}
		if l[0].To != "n4" || l[0].Cause != "affinity" || l[0].Blocker == nil || l[0].Blocker.Code != "actuation_paused" {
			return fmt.Errorf("the first move is shown as %+v", l[0])
		}
		return nil
	})
	c.refused(t, 6, []string{"paused"}, "rebalance")
	if n := len(c.moved(t)); n != 0 {
		t.Fatalf("%d moves began while actuation was paused", n)
	}
	c.must(t, "settings", "set", "rescheduler=off")
}

func (c *cluster) wouldMove(t testing.TB) []moveView {
	t.Helper()
	var l struct{ Items []moveView }
	c.mustJSON(t, &l, "rebalance", "--dry-run")
	return l.Items
}

// moved lists the placements that the rescheduler made, as their events show, the oldest first.
func (c *cluster) moved(t testing.TB) []eventView {
	t.Helper()
	return slices.DeleteFunc(c.events(t), func(e eventView) bool {
		return e.Type != "instance.allocated" || e.Cause != "affinity" && e.Cause != "rebalance"
	})
}

// checkMoves asserts that all moves went to the empty node, that no minute had more than perCycle moves, and that the
// command why and the metrics show the moves.
func (c *cluster) checkMoves(t *testing.T, moved []eventView, perCycle int) {
	t.Helper()
	n4 := c.node(t, c.agents[3])
	for i, e := range moved {
		if e.Data["node"] != n4.ID {
			t.Errorf("a move went to node %s", e.Data["node"])
		}
		if i >= perCycle && e.Time.Sub(moved[i-perCycle].Time) < 59*time.Second {
			t.Errorf("move %d began %s after the one %d before it", i+1, e.Time.Sub(moved[i-perCycle].Time), perCycle)
		}
	}
	old := moved[0].Data["replaces"]
	why := c.must(t, "why", old)
	if !strings.Contains(why, "affinity") || !strings.Contains(why, "rescheduler") {
		t.Errorf("why %s tells nothing of its move:\n%s", old, why)
	}
	var metrics string
	c.mustGet(t, "/metrics", &metrics)
	total := 0
	for _, line := range strings.Split(metrics, "\n") {
		if strings.HasPrefix(line, "outspan_reschedules_total{") && strings.Contains(line, `cause="affinity"`) {
			n := 0
			if _, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &n); err == nil {
				total += n
			}
		}
	}
	if total != len(moved) {
		t.Errorf("reschedules_total says %d, there were %d moves", total, len(moved))
	}
}
