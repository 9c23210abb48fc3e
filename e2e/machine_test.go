package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

// Only the agent is killed with SIGKILL and restarted. Its instances continue under the same ids, and the new agent
// adopts them. If an instance exits while no agent runs, the next agent reports that.
func testAgentRestart(t *testing.T, c *cluster) {
	c.run(t, job{name: "web", count: 8})
	n3 := c.agents[2]
	running, instances := identities(c.instances()), c.living(t, "web")
	events := len(c.events(t))
	epoch := c.node(t, n3).Epoch
	n3.Kill()
	if now := identities(c.instances()); !maps.Equal(running, now) {
		t.Errorf("without an agent: before %v, now %v", running, now)
	}
	n3.start(t)
	waitFor(t, "the return of n3", patience, func() error {
		if n := c.node(t, n3); n.Epoch <= epoch || !n.Eligible {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	if now := identities(c.instances()); !maps.Equal(running, now) {
		t.Errorf("after the restart: before %v, now %v", running, now)
	}
	c.checkUndisturbed(t, "web", instances, events)

	var victim string
	for id, ps := range c.instancesOf("web", n3) {
		n3.Kill()
		victim = id
		for _, p := range ps {
			procs.Kill(p.PID)
		}
		break
	}
	n3.start(t)
	waitFor(t, "the report of an end that no agent saw", patience, func() error {
		for _, e := range c.events(t) {
			if e.Subject == "instance/"+victim && e.Type == "instance.status_changed" && e.Data["before"] == "ready" {
				return nil
			}
		}
		return errors.New("there is no event")
	})
	c.waitReady(t, "web", 8)
}

// testAgentRestartInDrain checks that a drain continues when the agent of the drained node is killed and restarted.
func testAgentRestartInDrain(t *testing.T, c *cluster) {
	const count, minReady = 8, 7
	n1 := c.agents[0]
	c.run(t,
		job{name: "web", count: count, args: []string{"--boot", "1s"},
			more: fmt.Sprintf("    budget { min_ready = %d }", minReady)})
	old := c.instancesOf("web", n1)
	stop := c.sample("web", "default")
	var reply drainReply
	c.mustJSON(t, &reply, "node", "drain", "n1", "--detach")
	n1.Kill()
	n1.start(t)
	c.must(t, "drain", "watch", reply.Drain)
	if left := c.empty(n1); len(left) > 0 {
		t.Errorf("n1 is drained, and the kernel shows processes %v", left)
	}
	if seen := stop(); seen.ready < minReady || seen.alive < minReady || seen.most > count+len(old) {
		t.Errorf("%v\n%s", seen, seen.atLeast)
	}
	c.checkDrainOrder(t, reply, old)
}

// The agent and its instances are killed with SIGKILL. The node is offline after at most offlineAfter, two heartbeats
// and 2 s, and its instances are replaced immediately.
// proves P17, P18, P22, P35, S7
func testMachineDies(t *testing.T, c *cluster) {
	const count = 8
	port := c.freePort(t)
	c.run(t, job{name: "web", count: count, expose: port})
	for _, victim := range []*member{c.agents[1], c.agents[2]} {
		lost := slices.Collect(maps.Keys(c.instancesOf("web", victim)))
		stop := c.sample("web", "default")
		began := time.Now()
		victim.die(t)
		c.waitOffline(t, victim, began)
		c.waitReady(t, "web", count)
		all := time.Since(began)
		seen := stop()
		if seen.running > count {
			t.Errorf("%d instances were wanted at once, of %d: %v", seen.running, count, seen)
		}
		c.checkReplacedOnce(t, victim, lost, began, all)
		victim.start(t)
		waitFor(t, "the return of "+victim.Name, patience, func() error {
			if n := c.node(t, victim); n.Health != "online" {
				return fmt.Errorf("%+v", n)
			}
			return nil
		})
		if left := c.empty(victim); len(left) > 0 {
			t.Errorf("%s came back and runs %v, which was replaced", victim.Name, left)
		}
	}
	var text string
	c.mustGet(t, "/metrics", &text)
	if !strings.Contains(text, "outspan_offline_detection_seconds_count") {
		t.Error("there is no metric of the detection time")
	}
}

// waitOffline waits until a node that became silent at the given time is offline. It asserts that this took at most
// offlineAfter, two heartbeats and 2 s.
func (c *cluster) waitOffline(t *testing.T, m *member, since time.Time) {
	t.Helper()
	waitFor(t, m.Name+" offline", patience, func() error {
		if n := c.node(t, m); n.State != "offline" {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	at := c.wentOffline(t, m, since)
	t.Logf("%s was marked offline %s after it fell silent", m.Name, at.Sub(since).Round(time.Millisecond))
	if limit := offlineAfter + 2*heartbeat + 2*time.Second; at.Sub(since) > limit {
		t.Errorf("%s was marked offline after %s, want within T + 2H + 2 s = %s", m.Name, at.Sub(since), limit)
	}
}

// wentOffline returns when a node was marked offline, as its event says. The test fails if there is no such event.
func (c *cluster) wentOffline(t *testing.T, m *member, since time.Time) time.Time {
	t.Helper()
	for _, e := range c.events(t) {
		if e.Type == "node.state_changed" && e.Data["after"] == "offline" && e.Data["name"] == m.Name && e.Time.After(since) {
			return e.Time
		}
	}
	t.Fatalf("no event tells that %s is offline", m.Name)
	return time.Time{}
}

// checkReplacedOnce asserts that each lost instance has exactly one replacement, and that all replacements were placed
// within 1 s after the node was marked offline.
func (c *cluster) checkReplacedOnce(t *testing.T, m *member, lost []string, since time.Time, whole time.Duration) {
	t.Helper()
	offline := c.wentOffline(t, m, since)
	replaced, last := map[string]int{}, offline
	for _, e := range c.events(t) {
		if r := e.Data["replaces"]; e.Type == "instance.allocated" && slices.Contains(lost, r) {
			replaced[r]++
			if e.Time.After(last) {
				last = e.Time
			}
			if e.Cause != "node_offline" {
				t.Errorf("the cause of the replacement of %s is %q", r, e.Cause)
			}
		}
	}
	t.Logf("%d replacements placed %s later, all ready %s after the kill", len(replaced), last.Sub(offline).
		Round(time.Millisecond), whole.Round(time.Millisecond))
	for _, id := range lost {
		if replaced[id] != 1 {
			t.Errorf("lost instance %s has %d replacements", id, replaced[id])
		}
	}
	if last.Sub(offline) > time.Second {
		t.Errorf("the last replacement was placed %s after %s was offline, want at once", last.Sub(offline), m.Name)
	}
}

// polite is a job whose program writes a line to a file when it is asked to stop.
const polite = `job "polite" {
  group "main" {
    count = 2
    exec {
      command = "/bin/sh"
      args    = ["-c", "trap 'echo asked >> %s; exit 0' TERM; while :; do sleep 0.1; done"]
    }
    resources {
      memory = "16MiB"
    }
  }
}
`

// An instance is replaced while its agent is dead. When the agent returns, it asks the instance to stop. It does not
// kill the instance immediately, because clients may be connected to it.
func testReplacedHasItsGrace(t *testing.T, c *cluster) {
	asked := c.path("asked")
	if err := errors.Join(os.WriteFile(asked, nil, 0o600),
		os.Chmod(asked, 0o666)); err != nil { //nolint:gosec // the program writes it as another user
		t.Fatal(err)
	}
	c.must(t, "job", "run", c.writeText(t, "polite.hcl", fmt.Sprintf(polite, asked)))
	c.waitReady(t, "polite", 2)
	victim := c.member(c.living(t, "polite")[0].Node)
	there := len(c.instancesOf("polite", victim))
	began := time.Now()
	victim.Kill() // kills only the agent; its instances continue
	c.waitOffline(t, victim, began)
	c.waitReady(t, "polite", 2)
	victim.start(t)
	waitFor(t, "the end of what was replaced on "+victim.Name, patience, func() error {
		if n := len(c.instancesOf("polite", victim)); n > 0 {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
	if text, err := os.ReadFile(asked); err != nil || strings.Count(string(text), "asked") != there {
		t.Errorf("%d programs were replaced, and these noted that they were asked to end: %q, %v", there, text, err)
	}
}
