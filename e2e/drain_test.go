package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

// TestWork does what a user does with a healthy cluster of three servers and four agents. The parts run one after the
// other on the same cluster, which is emptied after each of them.
func TestWork(t *testing.T) {
	c := startCluster(t, options{servers: 3, agents: 4})
	for _, part := range []struct {
		name string
		test func(*testing.T, *cluster)
	}{
		{"Drain", testDrain},
		{"DrainWithoutRoom", testDrainWithoutRoom},
		{"DrainStubborn", testDrainStubborn},
		{"DrainLocalVolume", testDrainLocalVolume},
		{"Evict", testEvict},
		{"EvictRate", testEvictRate},
		{"BadJobs", testBadJobs},
		{"BadNames", testBadNames},
		{"BadBodies", testBadBodies},
		{"Strangers", testStrangers},
		{"Garbage", testGarbage},
		{"Greed", testGreed},
		{"Connections", testConnections},
		{"Snapshots", testSnapshots},
		{"ForeignData", testForeignData},
		{"Secrets", testSecrets},
		{"MemoryCap", testMemoryCap},
	} {
		t.Run(part.name, func(t *testing.T) {
			defer c.reset(t)
			part.test(t, c)
		})
	}
}

// A node that runs 3 of 12 instances is drained, and the budget's min_ready is 11. When the drain is shown as drained,
// nothing runs on the node any more. No request fails meanwhile.
// proves P4, P5, P6, P11, P14, P24, P34, B3, B9, R25, R48, S3
func testDrain(t *testing.T, c *cluster) {
	const count, minReady = 12, 11
	n1 := c.agents[0]
	port := c.freePort(t)
	c.run(t, job{name: "web", count: count, args: []string{"--boot", "300ms"}, expose: port,
		more: fmt.Sprintf("    budget { min_ready = %d }", minReady)})
	before := c.instancesOf("web", n1)
	if len(before) != count/4 {
		t.Fatalf("n1 runs %d instances, want %d", len(before), count/4)
	}

	stopSampling, stopProbing := c.sample("web", "default"), c.probe(port, c.agents...)
	truth := c.watchEnd(n1)
	var reply drainReply
	c.mustJSON(t, &reply, "node", "drain", "n1", "-m", "kernel update")
	left := <-truth
	samples, probes := stopSampling(), stopProbing()

	if !slices.Equal(reply.Started, []string{"n1"}) || len(reply.Rejected) > 0 || reply.Drain == "" {
		t.Errorf("the reply names started %v, rejected %v, drain %q", reply.Started, reply.Rejected, reply.Drain)
	}
	if reply.Result == nil || reply.Result.Phase != "drained" || reply.Result.Nodes[0].Phase != "drained" ||
		reply.Result.Message != "kernel update" {
		t.Errorf("the drain ended as %+v", reply.Result)
	}
	if left.err != nil || len(left.processes) > 0 {
		t.Errorf("when the drain was shown as drained, the kernel still showed processes %v of n1 (%v)",
			left.processes, left.err)
	}
	t.Logf("drain of %d instances: %v, %v", len(before), samples, probes)
	if samples.samples == 0 || samples.ready < minReady {
		t.Errorf("ready fell below min_ready %d: %v\n%s", minReady, samples, samples.atLeast)
	}
	if samples.alive < minReady || samples.most > count+len(before) {
		t.Errorf("the kernel counted %d to %d instances, want %d to %d", samples.alive, samples.most,
			minReady, count+len(before))
	}
	probes.perfect(t)
	c.checkDrainOrder(t, reply, before)
	c.waitReady(t, "web", count)

	if n := c.node(t, n1); n.State != "draining" || n.Instances != 0 || n.Eligible {
		t.Errorf("n1 after its drain: %+v", n)
	}
	c.must(t, "node", "uncordon", "n1")
	if n := c.node(t, n1); n.State != "active" || !n.Eligible {
		t.Errorf("n1 after uncordon: %+v", n)
	}
}

// ended contains the processes that the kernel showed on a node just after its drain was shown as drained.
type ended struct {
	processes []int
	err       error
}

// watchEnd waits until a drain of the node is shown as drained. Immediately after that it reads which processes run on
// the node, and sends them to the returned channel.
func (c *cluster) watchEnd(m *member) <-chan ended {
	result := make(chan ended, 1)
	go func() {
		var left []int
		err := within(2*patience, func() error {
			var l struct{ Items []drainView }
			if err := c.get("/v1/drains", &l); err != nil {
				return err
			}
			for _, d := range l.Items {
				for _, n := range d.Nodes {
					if n.Node == m.Name && d.Phase == "drained" {
						left = c.empty(m)
						return nil
					}
				}
			}
			return fmt.Errorf("drains %+v", l.Items)
		})
		result <- ended{left, err}
	}()
	return result
}

// checkDrainOrder checks the events of a drain. Nothing may be placed on the node after the reply. Each old instance
// must have one replacement, and may begin to stop only after the replacement is ready.
func (c *cluster) checkDrainOrder(t *testing.T, reply drainReply, old map[string][]procs.Row) {
	t.Helper()
	drained := map[string]bool{}
	for _, n := range c.nodes(t) {
		drained[n.ID] = slices.Contains(reply.Started, n.Name)
	}
	replacement, replaces := map[string]string{}, map[string]string{}
	ready, draining := map[string]uint64{}, map[string]uint64{}
	for _, e := range c.events(t) {
		id := strings.TrimPrefix(e.Subject, "instance/")
		switch {
		case e.Type == "instance.allocated":
			if drained[e.Data["node"]] && e.Index > reply.Index {
				t.Errorf("instance %s was placed on a drained node at %d, behind the reply at %d", id, e.Index, reply.Index)
			}
			if r := e.Data["replaces"]; r != "" {
				if replacement[r] != "" {
					t.Errorf("instance %s has two replacements, %s and %s", r, replacement[r], id)
				}
				replacement[r], replaces[id] = id, r
			}
		case e.Type == "instance.status_changed" && e.Data["after"] == "ready" && ready[id] == 0:
			ready[id] = e.Index
		case e.Type == "instance.desired_state_changed" && e.Data["after"] == "draining":
			draining[id] = e.Index
			if old[id] != nil && e.Cause != "node_draining" {
				t.Errorf("the cause of the stop of %s is %q", id, e.Cause)
			}
		}
	}
	for id := range old {
		r := replacement[id]
		if r == "" || ready[r] == 0 || draining[id] == 0 || draining[id] <= ready[r] {
			t.Errorf("instance %s began to stop at %d; its replacement %q was ready at %d", id, draining[id], r, ready[r])
		}
	}
}

// A node is drained while the other nodes have too little memory for a replacement. Forecast and status name the
// blocker, the drain fails at its deadline, and nothing is stopped.
// proves P10, P30, P33, P37, B4, B10, B11, B12
func testDrainWithoutRoom(t *testing.T, c *cluster) {
	c.run(t, job{name: "fat", count: 4, memory: "1200MiB"})
	before := identities(c.instancesOf("fat"))
	const blocker = "replacement_unschedulable:no_capacity_memory"

	dry := c.cli(t, "node", "drain", "n1", "--dry-run", "--json")
	dry.want(t, 21)
	var forecast drainReply
	if err := json.Unmarshal([]byte(dry.out), &forecast); err != nil || len(forecast.Forecast) != 1 {
		t.Fatalf("the forecast: %v: %v", err, dry)
	}
	if f := forecast.Forecast[0]; f.Node != "n1" || f.Class != "stateless" || f.Target != "" || f.Blocker != blocker {
		t.Errorf("forecast: %+v", f)
	}
	if n := c.node(t, c.agents[0]); n.State != "active" {
		t.Fatalf("the dry run left n1 as %+v", n)
	}

	var reply drainReply
	c.mustJSON(t, &reply, "node", "drain", "n1", "--deadline", "4s", "--detach")
	if len(reply.Forecast) != 1 || reply.Forecast[0].Blocker != blocker {
		t.Errorf("forecast in the reply: %+v", reply.Forecast)
	}
	waitFor(t, "the blocker in the drain's status", 3*time.Second, func() error {
		n := c.drain(t, reply.Drain).Nodes[0]
		if len(n.Blockers) != 1 || n.Blockers[0].Code != blocker || n.Blockers[0].Unblock == "" || len(n.Remaining) != 1 ||
			n.Remaining[0].Blocker != blocker {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	followed := c.cli(t, "drain", "watch", reply.Drain)
	followed.want(t, 22, blocker)
	d := c.drain(t, reply.Drain)
	if d.Phase != "failed" || d.Nodes[0].Phase != "failed" || !strings.Contains(d.Nodes[0].LastError, blocker) {
		t.Errorf("after the deadline: %+v", d)
	}
	if took := d.Nodes[0].Deadline.Sub(*d.Nodes[0].StartedAt); took != 4*time.Second {
		t.Errorf("the deadline was %s after the start, want 4s", took)
	}
	if after := identities(c.instancesOf("fat")); !maps.Equal(before, after) {
		t.Errorf("a drain without room stopped something: before %v, after %v", before, after)
	}
	if n := c.node(t, c.agents[0]); n.Intent != "draining" || n.Instances != 1 {
		t.Errorf("a failed drain keeps the cordon and the instance: %+v", n)
	}
}

// A program that ignores SIGTERM is killed after its grace. The instance's reason and exit code show the kill.
// proves P13, P15, P36
func testDrainStubborn(t *testing.T, c *cluster) {
	c.run(t,
		job{name: "deaf", count: 1, args: []string{"--ignore-term"},
			more: "    stop {\n      grace       = \"1500ms\"\n      drain_delay = \"200ms\"\n    }"})
	old := c.living(t, "deaf")[0]
	c.must(t, "node", "drain", old.Node)
	if left := c.empty(c.member(old.Node)); len(left) > 0 {
		t.Errorf("processes %v are left on %s", left, old.Node)
	}
	var draining, stopped eventView
	for _, e := range c.events(t) {
		switch {
		case e.Subject != "instance/"+old.ID:
		case e.Type == "instance.desired_state_changed" && e.Data["after"] == "draining":
			draining = e
		case e.Type == "instance.status_changed" && e.Data["after"] == "stopped":
			stopped = e
		}
	}
	took := stopped.Time.Sub(draining.Time)
	t.Logf("killed %s after the drain of it began: %q", took, stopped.Data["reason"])
	if took < 1500*time.Millisecond || took > 10*time.Second {
		t.Errorf("it was stopped %s after its drain began, want the grace of 1.5 s and little more", took)
	}
	if got := c.instance(t, old.ID); got.Observed != "stopped" || !strings.Contains(got.Reason, "kill") ||
		got.ExitCode == nil || *got.ExitCode != 137 {
		t.Errorf("how it is reported: %+v", got)
	}
}

// An instance with a local volume stays on a node that is drained. The drain's blockers name the instance and the
// volume. After ack-blockers the drain reaches the phase drained.
// proves P7, P8, P9, P10, P11
func testDrainLocalVolume(t *testing.T, c *cluster) {
	c.run(t,
		job{name: "db", count: 1, more: "    volume \"data\" {\n      kind = \"local\"\n      path = \"" +
			c.path("place") + "\"\n    }"})
	db := c.living(t, "db")[0]
	home := c.member(db.Node)
	before := identities(c.instancesOf("db"))

	var reply drainReply
	c.mustJSON(t, &reply, "node", "drain", home.Name, "--detach")
	if len(reply.Forecast) != 1 || reply.Forecast[0].Class != "stateful" || reply.Forecast[0].Action != "leave" ||
		reply.Forecast[0].Blocker != "volume_local" {
		t.Errorf("forecast: %+v", reply.Forecast)
	}
	n := c.drain(t, reply.Drain).Nodes[0]
	if len(n.Blockers) != 1 || n.Blockers[0].Code != "volume_local" || n.Blockers[0].Instance != db.ID ||
		!strings.Contains(n.Blockers[0].Volume, "data") {
		t.Errorf("blockers: %+v", n.Blockers)
	}
	if r := c.cli(t, "drain", "status", reply.Drain); !strings.Contains(r.out, "volume_local") ||
		!strings.Contains(r.out, db.ID) || !strings.Contains(r.out, "ack-blockers") {
		t.Errorf("the status does not tell instance, blocker and what would unblock it: %v", r)
	}
	if r := c.cli(t, "drain", "watch", reply.Drain, "--timeout", "1s"); r.code != 23 {
		t.Errorf("the drain does not wait for the acknowledgement: %v", r)
	}
	c.must(t, "node", "ack-blockers", home.Name)
	c.must(t, "drain", "watch", reply.Drain)
	if d := c.drain(t, reply.Drain); d.Phase != "drained" {
		t.Errorf("after the acknowledgement: %+v", d)
	}
	if after := identities(c.instancesOf("db", home)); !maps.Equal(before, after) {
		t.Errorf("the instance did not stay: before %v, after %v", before, after)
	}
}
