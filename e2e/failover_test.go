package e2e

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

// TestFailures breaks servers, agents and whole machines of one cluster of three servers and four agents, one after the
// other.
func TestFailures(t *testing.T) {
	c := startCluster(t, options{servers: 3, agents: 4})
	for _, part := range []struct {
		name string
		test func(*testing.T, *cluster)
	}{
		{"LeaderKilledInDrain", testLeaderKilledInDrain},
		{"AllServersKilled", testAllServersKilled},
		{"AgentRestart", testAgentRestart},
		{"AgentRestartInDrain", testAgentRestartInDrain},
		{"MachineDies", testMachineDies},
		{"ReplacedHasItsGrace", testReplacedHasItsGrace},
		{"RollingRestart", testRollingRestart},
		{"Members", testMembers},
	} {
		t.Run(part.name, func(t *testing.T) {
			defer c.reset(t)
			defer c.revive(t)
			part.test(t, c)
		})
	}
}

// revive starts every member that does not run, and waits until all servers have a vote and all nodes are online.
func (c *cluster) revive(t *testing.T) {
	t.Helper()
	for _, m := range c.members() {
		if !m.Running() {
			m.start(t)
		}
	}
	c.waitVoters(t, len(c.servers))
	c.waitHeard(t)
}

// waitHeard waits until all nodes are online and their heartbeats arrive, and no hold is active.
func (c *cluster) waitHeard(t *testing.T) {
	t.Helper()
	waitFor(t, "heartbeats of all nodes", patience, func() error {
		for _, n := range c.nodes(t) {
			if n.Health != "online" || n.LastSeen == nil || time.Since(*n.LastSeen) > 3*heartbeat {
				return fmt.Errorf("%+v", n)
			}
		}
		if s := c.status(t); s.Hold.Active {
			return fmt.Errorf("there is a hold: %+v", s.Hold)
		}
		return nil
	})
}

func (c *cluster) waitVoters(t *testing.T, count int) []memberView {
	t.Helper()
	var seen []memberView
	waitFor(t, fmt.Sprintf("%d voters, all alive and up to date", count), patience, func() error {
		var l struct{ Items []memberView }
		if err := c.get("/v1/members", &l); err != nil {
			return err
		}
		seen = l.Items
		good := 0
		for _, m := range l.Items {
			if m.Voter && m.State == "alive" && m.IndexLag < 50 {
				good++
			}
		}
		if good != count || len(l.Items) != count {
			return fmt.Errorf("%+v", l.Items)
		}
		return nil
	})
	return seen
}

// The leader is killed with SIGKILL in the middle of a drain. The drain continues, and the budget is never exceeded.
// proves B13, S3, S7
func testLeaderKilledInDrain(t *testing.T, c *cluster) {
	const count, minReady, window = 12, 11, 2 * time.Second
	n1 := c.agents[0]
	port := c.freePort(t)
	c.run(t, job{
		name: "web", count: count, args: []string{"--boot", "500ms"}, expose: port,
		more: fmt.Sprintf("    budget {\n      min_ready = %d\n      rate {\n        max    = 1\n"+
			"        window = %q\n      }\n    }", minReady, window),
	})
	old := c.instancesOf("web", n1)
	if len(old) < 3 {
		t.Fatalf("n1 runs %d instances", len(old))
	}
	drains := len(list[drainView](t, c, "/v1/drains"))
	stopSampling, stopProbing := c.sample("web", "default"), c.probe(port, c.agents...)
	var reply drainReply
	c.mustJSON(t, &reply, "node", "drain", "n1", "--deadline", "10m", "--detach")
	var before drainView
	waitFor(t, "the middle of the drain", patience, func() error {
		before = c.drain(t, reply.Drain)
		if len(before.Nodes[0].Remaining) >= len(old) {
			return errors.New("nothing has moved")
		}
		return nil
	})
	if before.Phase != "draining" {
		t.Fatalf("the drain was too fast to be interrupted: %+v", before)
	}
	leader := c.leader(t)
	killed := time.Now()
	leader.Kill()
	waitFor(t, "the end of the drain", patience, func() error {
		var d drainView
		if err := c.get("/v1/drains/"+reply.Drain, &d); err != nil {
			return err
		}
		if d.Phase != "drained" {
			return fmt.Errorf("%+v", d)
		}
		return nil
	})
	left := c.empty(n1)
	samples, probes := stopSampling(), stopProbing()
	t.Logf("leader %s killed: %v, %v", leader.Name, samples, probes)
	if len(left) > 0 {
		t.Errorf("n1 is drained, and the kernel shows processes %v", left)
	}
	after := c.drain(t, reply.Drain)
	if after.ID != before.ID || !after.Nodes[0].Deadline.Equal(*before.Nodes[0].Deadline) ||
		!after.Nodes[0].StartedAt.Equal(*before.Nodes[0].StartedAt) {
		t.Errorf("the drain changed: before %+v, after %+v", before, after)
	}
	if all := list[drainView](t, c, "/v1/drains"); len(all) != drains+1 {
		t.Errorf("there were %d drains, and now there are %+v", drains, all)
	}
	if samples.ready < minReady || samples.alive < minReady || samples.most > count+len(old) {
		t.Errorf("the budget was broken, or too much was started: %v\n%s", samples, samples.atLeast)
	}
	probes.perfect(t)
	c.checkDrainOrder(t, reply, old)
	c.checkStops(t, old, killed, window)
}

// checkStops asserts that a drain stopped its next instance within 5 s of the leader's death, and that the drain never
// exceeded the budget's rate.
func (c *cluster) checkStops(t *testing.T, old map[string][]procs.Row, killed time.Time, window time.Duration) {
	t.Helper()
	var stops []time.Time
	for _, e := range c.events(t) {
		if e.Type == "instance.desired_state_changed" && e.Data["after"] == "draining" &&
			old[strings.TrimPrefix(e.Subject, "instance/")] != nil {
			stops = append(stops, e.Time)
		}
	}
	resumed := time.Duration(-1)
	for i, at := range stops {
		if at.After(killed) && resumed < 0 {
			resumed = at.Sub(killed)
		}
		if i > 0 && at.Sub(stops[i-1]) < window-50*time.Millisecond {
			t.Errorf("two stops within %s; the budget allows one in %s", at.Sub(stops[i-1]), window)
		}
	}
	t.Logf("the drain went on %s after the leader was killed", resumed)
	if resumed < 0 || resumed > 5*time.Second {
		t.Errorf("the drain went on %s after the leader was killed, want within 5 s: stops at %v, killed at %v",
			resumed, stops, killed)
	}
}

// All servers are killed with SIGKILL and restarted. Nothing acknowledged is lost, and nothing that runs is disturbed.
// proves S4
func testAllServersKilled(t *testing.T, c *cluster) {
	port := c.freePort(t)
	c.run(t, job{name: "web", count: 4, expose: port})
	c.must(t, "node", "cordon", "n4")
	var drained drainReply
	c.mustJSON(t, &drained, "node", "drain", "n3", "--message", "before")
	c.waitReady(t, "web", 4)
	running, instances := identities(c.instances()), c.living(t, "web")
	events := len(c.events(t))
	stopProbing := c.probe(port, c.agents...)

	acknowledged := c.writeUntil(t, func() {
		for _, s := range c.servers {
			s.Kill()
		}
	})
	time.Sleep(offlineAfter + 2*time.Second) // longer than the time after which a silent node is marked offline
	if now := identities(c.instances()); !maps.Equal(running, now) {
		t.Errorf("without servers: before %v, now %v", running, now)
	}
	for _, s := range c.servers {
		s.start(t)
	}
	c.waitVoters(t, 3)
	c.waitHeard(t)
	probes := stopProbing()
	t.Logf("all servers killed after %d writes were acknowledged: %v", acknowledged, probes)
	probes.perfect(t)
	if now := identities(c.instances()); !maps.Equal(running, now) {
		t.Errorf("after the restart: before %v, now %v", running, now)
	}
	if mark, _ := strconv.Atoi(c.node(t, c.agents[0]).Labels["mark"]); mark != acknowledged && mark != acknowledged+1 {
		t.Errorf("the last acknowledged write was %d, the state says %d", acknowledged, mark)
	}
	if n := c.node(t, c.agents[3]); n.Intent != "cordoned" {
		t.Errorf("n4 was cordoned: %+v", n)
	}
	if d := c.drain(t, drained.Drain); d.Phase != "drained" || d.Message != "before" {
		t.Errorf("the ended drain: %+v", d)
	}
	c.checkUndisturbed(t, "web", instances, events)
}

// checkUndisturbed asserts that a job has the same instances as before. The parameter event is the number of events at
// that time. No later event may be about an instance, or mark a node offline.
func (c *cluster) checkUndisturbed(t *testing.T, job string, before []instanceView, event int) {
	t.Helper()
	for _, was := range before {
		if is := c.instance(t, was.ID); is.Node != was.Node || is.Desired != "running" || !is.Ready ||
			is.Restarts != was.Restarts {
			t.Errorf("instance %s was %+v and is %+v", was.ID, was, is)
		}
	}
	if now := c.living(t, job); len(now) != len(before) {
		t.Errorf("job %s had %d instances and has %d", job, len(before), len(now))
	}
	for _, e := range c.events(t)[event:] {
		if strings.HasPrefix(e.Type, "instance.") || e.Type == "node.state_changed" && e.Data["after"] == "offline" {
			t.Errorf("something happened: %+v", e)
		}
	}
}

// writeUntil writes growing numbers to a label of n1 until a write fails. After 25 acknowledged writes it calls deed,
// which must make a write fail. It returns the last acknowledged number.
func (c *cluster) writeUntil(t *testing.T, deed func()) (acknowledged int) {
	t.Helper()
	enough, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 1; ; n++ {
			a, err := c.post("/v1/nodes/n1/label", fmt.Sprintf(`{"labels":{"mark":"%d"}}`, n))
			if err != nil || a.status != 200 {
				return
			}
			if acknowledged = n; n == 25 {
				close(enough)
			}
		}
	}()
	select {
	case <-enough:
	case <-done:
		t.Fatalf("writes ended after %d", acknowledged)
	}
	deed()
	<-done
	return acknowledged
}

// testRollingRestart restarts the servers one after the other with SIGTERM. Each server exits with code 0, no request
// fails, and all instances continue.
func testRollingRestart(t *testing.T, c *cluster) {
	port := c.freePort(t)
	c.run(t, job{name: "web", count: 4, expose: port})
	running, instances := identities(c.instances()), c.living(t, "web")
	events := len(c.events(t))
	stopProbing := c.probe(port, c.agents...)
	for _, s := range c.servers {
		if code := s.terminate(t); code != 0 {
			t.Errorf("%s ended with code %d after SIGTERM", s.Name, code)
		}
		began := time.Now()
		c.must(t, "node", "label", "n1", "restarted="+s.Name)
		t.Logf("first write %s after %s had ended", time.Since(began).Round(time.Millisecond), s.Name)
		s.start(t)
		c.waitVoters(t, 3)
	}
	stopProbing().perfect(t)
	if now := identities(c.instances()); !maps.Equal(running, now) {
		t.Errorf("before %v, now %v", running, now)
	}
	c.checkUndisturbed(t, "web", instances, events)
}
