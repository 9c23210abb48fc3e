package e2e

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// preemptView has those fields of an instance that are about preemption.
type preemptView struct {
	ID        string   `json:"id"`
	Node      string   `json:"node"`
	Observed  string   `json:"observed"`
	StopCause string   `json:"stop_cause"`
	Awaits    []string `json:"awaits"`
}

const (
	halfNode  = "400MiB" // with the overhead, two of these fill a node of 1000 MiB, and so does one of wholeNode
	wholeNode = "864MiB"
	slowStop  = "    stop {\n      grace       = \"3s\"\n      drain_delay = \"0s\"\n    }\n"
)

// runClass submits a job of a class. If detached is false, it waits until all instances are ready.
func (c *cluster) runClass(t *testing.T, class string, j job, detached bool) {
	t.Helper()
	c.must(t, "job", "run", c.writeClass(t, class, j), "--detach")
	if !detached {
		c.waitReady(t, j.name, j.count)
	}
}

func (c *cluster) writeClass(t *testing.T, class string, j job) string {
	t.Helper()
	return c.writeText(t, j.name+".hcl", strings.Replace(j.hcl(c.bin), "{\n", fmt.Sprintf("{\n  class = %q\n", class), 1))
}

// Two nodes are full: one runs two instances of a low class, the other runs one instance of a higher class. An instance
// of an even higher class takes the room of the two. It starts only after these two have exited. A budget that allows
// no stop prevents a second preemption.
// proves R10, R12, R44, R45, R46, R47
func TestPreempt(t *testing.T) {
	long(t)
	t.Parallel()
	c := startCluster(t, options{servers: 3, agents: 2, memory: "1000MiB"})
	c.runClass(t, "production", job{name: "mid", count: 1, memory: wholeNode, more: "    budget { min_ready = 0 }"}, false)
	low := job{name: "low", count: 2, memory: halfNode, args: []string{"--ignore-term"},
		more: slowStop + "    budget { min_ready = 0 }"}
	c.runClass(t, "batch", low, false)
	mid, victims := identities(c.instancesOf("mid")), c.living(t, "low")
	if len(victims) != 2 || victims[0].Node != victims[1].Node {
		t.Fatalf("low runs as %+v, want both on one node", victims)
	}

	overlap := c.watchOverlap("top", "low")
	top := job{name: "top", count: 1, memory: wholeNode}
	c.runClass(t, "critical", top, true)
	c.checkWaiting(t, victims)
	c.waitReady(t, "top", 1)
	if err := overlap(); err != nil {
		t.Error(err)
	}
	if got := c.living(t, "top")[0]; got.Node != victims[0].Node {
		t.Errorf("top runs on %s, and its room was made on %s", got.Node, victims[0].Node)
	}
	if now := identities(c.instancesOf("mid")); !maps.Equal(mid, now) {
		t.Errorf("the more important one was touched: before %v, now %v", mid, now)
	}
	c.checkPreemption(t, victims)
	c.checkBudgetKeeps(t, low, top)
}

// watchOverlap samples the kernel until stop is called. stop returns an error if an instance of the first job ran
// before all instances of the second had exited. So each sample reads the first job before the second.
func (c *cluster) watchOverlap(first, second string) (stop func() error) {
	done, result := make(chan struct{}), make(chan error, 1)
	go func() {
		seen := 0
		for {
			if ones := c.instancesOf(first); len(ones) > 0 {
				seen++
				if others := c.instancesOf(second); len(others) > 0 {
					result <- fmt.Errorf("%s runs as %v while %s still runs as %v", first, ones, second, others)
					return
				}
			}
			select {
			case <-done:
				if seen == 0 {
					result <- fmt.Errorf("the kernel never showed %s", first)
					return
				}
				result <- nil
				return
			default:
			}
		}
	}()
	return func() error { close(done); return <-result }
}

// checkWaiting asserts that, during the victims' grace, the preemptor shows what it waits for and the victims show
// which instance takes their room.
func (c *cluster) checkWaiting(t *testing.T, victims []instanceView) {
	t.Helper()
	var top preemptView
	waitFor(t, "the preemptor", patience, func() error {
		var l struct{ Items []preemptView }
		if err := c.get("/v1/instances?job=top", &l); err != nil {
			return err
		}
		if len(l.Items) != 1 || len(l.Items[0].Awaits) != 2 {
			return fmt.Errorf("%+v", l.Items)
		}
		top = l.Items[0]
		return nil
	})
	if why := c.must(t, "why", top.ID); !strings.Contains(why, "have really stopped") ||
		!strings.Contains(why, victims[0].ID) || !strings.Contains(why, victims[1].ID) {
		t.Errorf("why of the preemptor:\n%s", why)
	}
	for _, v := range victims {
		if why := c.must(t, "why", v.ID); !strings.Contains(why, "preempted") || !strings.Contains(why, top.ID) {
			t.Errorf("why of the victim %s:\n%s", v.ID, why)
		}
	}
}

// checkPreemption checks the events. Both stops and the placement must be in one entry, and the preemptor must start
// only after both victims have stopped.
func (c *cluster) checkPreemption(t *testing.T, victims []instanceView) {
	t.Helper()
	top := c.living(t, "top")[0].ID
	var placed, booting uint64
	began, ended, wall := map[string]uint64{}, map[string]uint64{}, map[string][2]time.Time{}
	for _, e := range c.events(t) {
		id := strings.TrimPrefix(e.Subject, "instance/")
		victim := slices.ContainsFunc(victims, func(v instanceView) bool { return v.ID == id })
		switch {
		case id == top && e.Type == "instance.allocated":
			placed = e.Index
		case id == top && e.Type == "instance.status_changed" && booting == 0:
			booting = e.Index
		case victim && e.Type == "instance.desired_state_changed" && e.Data["after"] == "draining":
			began[id] = e.Index
			wall[id] = [2]time.Time{e.Time}
			if e.Cause != "preempted" || e.Data["by"] != top {
				t.Errorf("the stop of %s is for %q, by %q", id, e.Cause, e.Data["by"])
			}
		case victim && e.Type == "instance.status_changed" && e.Data["after"] == "stopped":
			ended[id] = e.Index
			wall[id] = [2]time.Time{wall[id][0], e.Time}
		}
	}
	for _, v := range victims {
		if began[v.ID] != placed || ended[v.ID] == 0 || ended[v.ID] >= booting {
			t.Errorf("victim %s: its stop began at index %d (the placement is at %d) and ended at %d (the preemptor "+
				"first moved at %d)", v.ID, began[v.ID], placed, ended[v.ID], booting)
		}
		if took := wall[v.ID][1].Sub(wall[v.ID][0]); took < 3*time.Second {
			t.Errorf("victim %s ignores SIGTERM and was gone after %s: it did not get its grace of 3 s", v.ID, took)
		}
	}
	var text string
	waitFor(t, "the metric", patience, func() error {
		if err := c.leader(t).get("/metrics", &text); err != nil {
			return err
		}
		if !strings.Contains(text, "outspan_preemptions_total 2\n") {
			return errors.New("outspan_preemptions_total is not 2")
		}
		return nil
	})
}

// checkBudgetKeeps runs the job low again, with a budget that allows no stop. It asserts that the job top waits until
// the budget allows the stops.
func (c *cluster) checkBudgetKeeps(t *testing.T, low, top job) {
	t.Helper()
	c.must(t, "job", "stop", "top", "--purge")
	c.waitReady(t, "low", 2)
	c.must(t, "job", "stop", "mid", "--purge")
	waitFor(t, "the end of mid", patience, func() error {
		for _, j := range list[jobView](t, c, "/v1/jobs") {
			if j.Name == "mid" {
				return fmt.Errorf("%+v", j)
			}
		}
		return nil
	})
	c.runClass(t, "critical", job{name: "rock", count: 1, memory: wholeNode}, false)
	low.more = slowStop + "    budget { min_ready = 2 }"
	c.runClass(t, "batch", low, false)
	before := identities(c.instancesOf("low"))

	c.refused(t, 21, []string{"budget_min_ready"}, "job", "run", c.writeClass(t, "critical", top), "--detach")
	waitFor(t, "the reason why it waits", patience, func() error {
		r := c.cli(t, "why", "top/http")
		if !strings.Contains(r.out, "budget_min_ready") {
			return errors.New(r.out)
		}
		return nil
	})
	if now := identities(c.instancesOf("low")); !maps.Equal(before, now) || len(now) != 2 {
		t.Fatalf("the budget was broken: before %v, now %v", before, now)
	}
	low.more = slowStop + "    budget { min_ready = 0 }"
	c.runClass(t, "batch", low, true)
	c.waitReady(t, "top", 1)
}
