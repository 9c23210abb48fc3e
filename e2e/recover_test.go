package e2e

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// One of three servers is down while changes are acknowledged and instances start. Then the other two are lost, and the
// cluster is recovered from the server that was down. No instance is stopped before a person confirms the recovery.
// After the confirmation, the instances that the recovered state does not know are stopped.
func TestRecover(t *testing.T) {
	c := startCluster(t, options{servers: 3, agents: 3})
	c.run(t, job{name: "kept", count: 3})
	c.must(t, "node", "label", "n1", "when=before")
	left := without(c.servers, c.leader(t))[0]
	waitFor(t, "what was written before, at the server that will be left", patience, func() error {
		var n nodeView
		if err := left.get("/v1/nodes/n1?consistency=stale", &n); err != nil || n.Labels["when"] != "before" {
			return fmt.Errorf("%+v (%w)", n, err)
		}
		return nil
	})
	left.Kill()
	c.run(t, job{name: "later", count: 2})
	c.must(t, "node", "label", "n1", "when=after")
	running := identities(c.instances())
	for _, s := range c.servers {
		s.Kill()
	}
	c.must(t, "server", "recover", "--data-dir", left.data(), "--advertise", left.api(), "--yes")
	left.start(t)
	c.waitVoters(t, 1)
	c.waitEligible(t, c.agents...)
	c.waitReady(t, "kept", 3)
	if n := c.node(t, c.agents[0]); n.Labels["when"] != "before" {
		t.Errorf("the server that is left knows what it never heard: %+v", n)
	}
	c.waitHeard(t)
	if now := identities(c.instances()); !maps.Equal(running, now) {
		t.Errorf("the recovery stopped or started something: before %v, now %v", running, now)
	}
	if status := c.must(t, "status"); !strings.Contains(status, "outspan settings resume") {
		t.Errorf("the status does not tell what waits to be confirmed:\n%s", status)
	}
	c.must(t, "node", "label", "n1", "when=again")
	c.must(t, "settings", "resume", "restore")
	waitFor(t, "the end of what the state does not know", patience, func() error {
		if lost := c.instancesOf("later"); len(lost) > 0 {
			return fmt.Errorf("%v", lost)
		}
		return nil
	})
	c.run(t, job{name: "later", count: 2})
	c.waitReady(t, "kept", 3)
}

// All servers are destroyed with their disks. Three servers with new names start from a saved state at the old
// addresses. The agents connect to the new servers automatically, and no program is stopped or restarted.
func TestTotalLoss(t *testing.T) {
	c := startCluster(t, options{servers: 3, agents: 3})
	c.run(t, job{name: "kept", count: 3})
	c.run(t,
		job{name: "data", count: 2,
			more: "    role = \"local\"\n    volume \"rows\" {\n      kind = \"local\"\n      path = \"/srv/rows\"\n    }"})
	saved := c.path("saved.snap")
	c.must(t, "server", "snapshot", "save", saved)
	running := identities(c.instances())
	c.loseServers(t, saved)
	c.waitEligible(t, c.agents...)
	c.waitReady(t, "kept", 3)
	c.waitReady(t, "data", 2)
	c.waitHeard(t)
	c.must(t, "settings", "resume", "restore")
	c.must(t, "job", "scale", "kept", "http=4")
	c.waitReady(t, "kept", 4)
	for id, was := range running {
		if now := identities(c.instances()); now[id] != was {
			t.Errorf("%s was disturbed: %v before, %v now", id, was, now[id])
		}
	}
}
