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

// TestPartitions cuts the network of a cluster of three servers and eight agents. Each member has its own namespace.
func TestPartitions(t *testing.T) {
	require(t, "ip", "iptables", "nsenter")
	c := startCluster(t, options{servers: 3, agents: 8, namespaces: true})
	c.run(t, job{name: "web", count: 8, more: "    distinct { attribute = \"node.id\" }"})
	for _, part := range []struct {
		name string
		test func(*testing.T, *cluster)
	}{
		{"LeaderBlind", testLeaderBlind},
		{"AgentCutOff", testAgentCutOff},
		{"MassGuard", testMassGuard},
		{"DeafAgent", testDeafAgent},
	} {
		t.Run(part.name, func(t *testing.T) {
			defer c.network.heal(t)
			part.test(t, c)
		})
	}
}

// since returns the events after the given index of the state.
func (c *cluster) since(t testing.TB, index uint64) []eventView {
	t.Helper()
	return slices.DeleteFunc(c.events(t), func(e eventView) bool { return e.Index <= index })
}

// calm asserts that no event marks a node offline or is about an instance.
func calm(t *testing.T, events []eventView) {
	t.Helper()
	for _, e := range events {
		if strings.HasPrefix(e.Type, "instance.") || e.Type == "node.state_changed" && e.Data["after"] == "offline" {
			t.Errorf("something happened: %+v", e)
		}
	}
}

// The leader is cut off from all agents while the other servers hear them. No node is marked offline (S13).
func testLeaderBlind(t *testing.T, c *cluster) {
	leader, before, running := c.leader(t), c.status(t).Index, identities(c.instances())
	c.network.cut(t, []*member{leader}, c.agents)
	waitFor(t, "a word that another server sees what the leader can't", patience, func() error {
		for _, n := range c.nodes(t) {
			if n.SeenBy == "" {
				return fmt.Errorf("%+v", n)
			}
		}
		return nil
	})
	for deadline := time.Now().Add(3 * offlineAfter); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		for _, n := range c.nodes(t) {
			if n.State == "offline" {
				t.Fatalf("%+v", n)
			}
		}
		if s := c.status(t); s.Hold.Active {
			t.Fatalf("there is a hold although others hear all nodes: %+v", s.Hold)
		}
	}
	c.network.heal(t)
	c.waitEligible(t, c.agents...)
	calm(t, c.since(t, before))
	if now := identities(c.instances()); !maps.Equal(running, now) {
		t.Errorf("before %v, now %v", running, now)
	}
}

// An agent that is cut off for longer than offlineAfter stops the replaced instances when it returns (S7, S9).
func testAgentCutOff(t *testing.T, c *cluster) {
	// The new version has no distinct, so that other nodes can take the instances of the lost node. A node may run none.
	c.run(t, job{name: "web", count: 8})
	lost := c.agents[slices.IndexFunc(c.agents, func(m *member) bool { return len(c.instancesOf("web", m)) > 0 })]
	old := c.instancesOf("web", lost)
	before := c.status(t).Index
	began := time.Now()
	c.network.cut(t, []*member{lost}, without(c.members(), lost))
	c.waitOffline(t, lost, began)
	c.waitReady(t, "web", 8)
	if now := identities(c.instancesOf("web", lost)); !maps.Equal(identities(old), now) {
		t.Errorf("the node that is cut off ran %v and runs %v", identities(old), now)
	}
	if all := len(c.instancesOf("web")); all != 8+len(old) {
		t.Errorf("the kernel shows %d instances, want 8 and %d that were replaced", all, len(old))
	}
	healed := time.Now()
	c.network.heal(t)
	waitFor(t, "the end of what was replaced", patience, func() error {
		if left := c.empty(lost); len(left) > 0 {
			return fmt.Errorf("%s runs %v", lost.Name, left)
		}
		return nil
	})
	t.Logf("%s stopped what was replaced %s after its return", lost.Name, time.Since(healed).Round(time.Millisecond))
	waitFor(t, lost.Name+" online", patience, func() error {
		if n := c.node(t, lost); n.Health != "online" {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	c.waitReady(t, "web", 8)
	allocated := 0
	for _, e := range c.since(t, before) {
		if e.Type == "instance.allocated" && e.Data["replaces"] != "" {
			allocated++
		}
	}
	if allocated != len(old) {
		t.Errorf("%d instances were placed in place of %d", allocated, len(old))
	}
}

// Five of eight agents are cut off. A hold begins and nothing is evicted. The hold is visible in status, metrics and
// events. It ends by itself when the agents are back (S12).
func testMassGuard(t *testing.T, c *cluster) {
	waitFor(t, "all nodes online", patience, func() error {
		for _, n := range c.nodes(t) {
			if n.Health != "online" {
				return fmt.Errorf("%+v", n)
			}
		}
		return nil
	})
	before, running := c.status(t).Index, identities(c.instances())
	lost := c.agents[:5]
	c.network.cut(t, lost, without(c.members(), lost...))
	waitFor(t, "the hold", patience, func() error {
		if s := c.status(t); !s.Hold.Active || s.Hold.Reason == "" {
			return errors.New("there is none")
		}
		return nil
	})
	time.Sleep(offlineAfter + 2*heartbeat + 2*time.Second) // without the hold, all five would be offline by then
	if n := c.status(t).Nodes["offline"]; n != 0 {
		t.Errorf("%d nodes are offline", n)
	}
	if out := c.must(t, "status"); !strings.Contains(out, "5 of 8 nodes are silent") {
		t.Errorf("the status does not tell of the hold:\n%s", out)
	}
	var metrics string
	if err := c.leader(t).get("/metrics", &metrics); err != nil ||
		!strings.Contains(metrics, "outspan_mass_offline_hold 1") {
		t.Errorf("the metrics of the leader don't tell of the hold (%v)", err)
	}
	if now := identities(c.instances()); !maps.Equal(running, now) {
		t.Errorf("before %v, now %v", running, now)
	}
	c.network.heal(t)
	healed := time.Now()
	c.waitEligible(t, c.agents...)
	waitFor(t, "the end of the hold", 90*time.Second, func() error {
		if s := c.status(t); s.Hold.Active {
			return errors.New(s.Hold.Reason)
		}
		return nil
	})
	t.Logf("the hold ended %s after the network was whole", time.Since(healed).Round(time.Second))
	events := c.since(t, before)
	calm(t, events)
	var hold []string
	for _, e := range events {
		if e.Type == "hold.changed" {
			hold = append(hold, e.Data["after"])
		}
	}
	if fmt.Sprint(hold) != "[true false]" {
		t.Errorf("the events tell of the hold: %v", hold)
	}
}

// TCP packets to an agent are lost. The servers still hear the agent's heartbeats, which are UDP packets, but the agent
// gets no answers. The node is unreachable and gets no new instances, and its instances keep running. When the agent
// gets answers again, the node accepts instances again.
func testDeafAgent(t *testing.T, c *cluster) {
	c.run(t, job{name: "web", count: 8})
	deaf := c.agents[0]
	before, running := c.status(t).Index, identities(c.instances())
	for _, m := range without(c.members(), deaf) {
		c.network.iptables(t, deaf, "-A", "INPUT", "-p", "tcp", "-s", m.address, "-j", "DROP")
	}
	waitFor(t, deaf.Name+" unreachable", patience, func() error {
		if n := c.node(t, deaf); n.State != "unreachable" || n.Eligible || !strings.Contains(n.Reason, "gets no answers") {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	c.run(t, job{name: "more", count: 8})
	if got := c.instancesOf("more", deaf); len(got) > 0 {
		t.Errorf("new work on a node that hears nothing: %v", identities(got))
	}
	for id, was := range running {
		if now := identities(c.instances())[id]; now != was {
			t.Errorf("%s was %v and is %v", id, was, now)
		}
	}
	calm(t, slices.DeleteFunc(c.since(t, before), func(e eventView) bool {
		return strings.HasPrefix(e.Type, "instance.") && e.Data["job"] != "web"
	}))
	c.network.heal(t)
	c.waitEligible(t, deaf)
}
