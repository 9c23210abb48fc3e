package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// proves P2, A6: a machine whose data directory is full is degraded within 10 s, and the reason is shown. An instance
// of a front-end service leaves the machine when the instance's toleration not_ready is over. Three instances of the
// service are ready all the time. When there is space again, the machine accepts instances.
func TestSickMachine(t *testing.T) {
	long(t)
	t.Parallel()
	require(t)
	c := newCluster(t, options{servers: 3, agents: 3})
	sick := c.agents[0]
	sick.smallDisk(t)
	for _, m := range c.servers {
		m.start(t)
	}
	sick.start(t)
	c.waitEligible(t, sick)
	front := "    role = \"front\"\n    budget {\n      min_ready = 3\n    }\n"
	c.run(t, job{name: "web", count: 3, more: front})
	for _, m := range c.agents[1:] {
		m.start(t)
	}
	c.waitEligible(t, c.agents...)

	began := time.Now()
	free := sick.fillDisk(t)
	c.must(t, "node", "status", sick.Name, "--wait=degraded", "--timeout", "10s")
	t.Logf("degraded after %s", time.Since(began))
	for _, command := range [][]string{{"node", "status", sick.Name}, {"node", "ls", "-o", "wide"}} {
		if out := c.must(t, command...); !strings.Contains(out, "data directory "+sick.data()+" is full") {
			t.Errorf("%v does not say why:\n%s", command, out)
		}
	}
	waitFor(t, "the event that says why", patience, func() error { // the answering server may be behind the leader
		if out := c.must(t, "events", "--type", "node.checks_changed"); !strings.Contains(out, "disk_full") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	least := 3
	waitFor(t, "the front to have left", patience, func() error {
		ready, here := 0, 0
		for _, i := range c.living(t, "web") {
			if i.Ready {
				ready++
			}
			if i.Node == sick.Name {
				here++
			}
		}
		least = min(least, ready)
		if here > 0 || ready < 3 {
			return fmt.Errorf("%d are there, %d are ready", here, ready)
		}
		return nil
	})
	if took := time.Since(began); took < 15*time.Second {
		t.Errorf("it left after %s, before its toleration was over", took)
	}
	if least < 3 {
		t.Errorf("only %d were ready for a while, the budget keeps 3", least)
	}
	if out := c.must(t, "events", "--type", "instance.desired_state_changed"); !strings.Contains(out, "node_not_ready") {
		t.Errorf("no event names the cause:\n%s", out)
	}

	free()
	c.must(t, "node", "status", sick.Name, "--wait=eligible", "--timeout", "60s")
	if n := c.node(t, sick); n.State != "active" || n.Health != "online" || n.Reason != "" {
		t.Errorf("with room again it is %+v", n)
	}
}
