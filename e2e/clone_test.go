package e2e

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// quorum gives a group the role quorum, which allows no member to run twice. The role check reports no facts, so no
// member is evicted automatically.
const quorum = "    role = \"quorum\"\n" +
	"    role_check {\n      exec     = [\"/bin/echo\", \"{}\"]\n      interval = \"1s\"\n    }\n"

// A machine is copied with its data directory, and the copy is started at another address. The servers refuse the
// copy's agent however often it registers. The log of the copy's agent names the first agent's address. Nothing is
// disturbed.
func TestClonedMachine(t *testing.T) {
	c := startCluster(t, options{servers: 3, agents: 2})
	c.run(t, job{name: "single", count: 2, more: quorum + apart})
	c.run(t, job{name: "web", count: 2})
	first := c.agents[0]
	clone := c.copyAgent(t, first, func(*member, *testing.T) {})
	before, stopWatching := c.programs(), c.watchPrograms()
	epoch := c.node(t, first).Epoch

	clone.start(t)
	clone.waitSays(t, "node "+first.Name+" is in use by the agent at "+first.address, "empty data_dir")
	c.run(t, job{name: "more", count: 2, more: apart})
	if n := c.node(t, first); n.Address != first.address || n.Epoch != epoch {
		t.Errorf("the node is at %s in epoch %d, want %s in epoch %d", n.Address, n.Epoch, first.address, epoch)
	}
	if code := clone.terminate(t); code != 0 {
		t.Errorf("the copy's agent ended with %d", code)
	}
	c.waitHeard(t)
	seen := stopWatching()
	for id, was := range before {
		if !slices.Equal(seen[id], was) {
			t.Errorf("instance %s ran as %v and was seen as %v", id, was, seen[id])
		}
	}
}

// A container is copied with its data directory on the same kernel, so the copy has the same boot id and machine id.
// The copy's agent is started while the original's agent is down. The servers refuse the copy's agent, because the
// original may still run instances that must not run twice.
func TestCopiedContainer(t *testing.T) {
	c := newCluster(t, options{servers: 3, agents: 2})
	first := c.agents[0]
	first.disk(t) // a tmpfs records when a directory was made, and a copy is detected by that time
	for _, m := range c.members() {
		m.start(t)
	}
	c.waitEligible(t, c.agents...)
	c.run(t, job{name: "single", count: 2, more: quorum + apart})
	clone := c.copyAgent(t, first, (*member).disk)
	before, stopWatching := c.programs(), c.watchPrograms()
	first.Kill()
	c.must(t, "node", "status", first.Name, "--wait=offline", "--timeout", "60s")
	clone.start(t)
	clone.waitSays(t, "is a copy of that of node "+first.Name, "confirm-dead "+first.Name+" --force")
	time.Sleep(2 * time.Second)
	if code := clone.terminate(t); code != 0 {
		t.Errorf("the copy's agent ended with %d", code)
	}
	first.start(t)
	c.waitEligible(t, c.agents...)
	c.waitHeard(t)
	seen := stopWatching()
	for id, was := range before {
		if !slices.Equal(seen[id], was) {
			t.Errorf("instance %s ran as %v and was seen as %v", id, was, seen[id])
		}
	}
}

// copyAgent returns an agent on a copy of another agent's data directory, at another address. It does not start the
// agent. It calls prepare before it copies, so that prepare can make the new data directory.
func (c *cluster) copyAgent(t *testing.T, first *member, prepare func(*member, *testing.T)) *member {
	t.Helper()
	parts := strings.Split(first.address, ".")
	parts[3] = "77"
	clone := c.newMember("agent", "clone", strings.Join(parts, "."))
	clone.cert = first.cert
	prepare(clone, t)
	if out, err := output(exec.Command("cp", "-aT", first.data(), clone.data()), time.Minute); err != nil {
		t.Fatalf("copy the data directory: %v: %s", err, out)
	}
	s := clone.settings()
	s["name"] = "\"" + first.Name + "\""
	s["agent"] = strings.Replace(s["agent"], c.name, c.name+"-clone", 1)
	clone.configure(t, s)
	return clone
}

// A copy's agent is refused. Then a state is restored that does not know the node, and the copy's agent runs while the
// original's agent is down. The copy's agent is still refused. The original's programs continue, and nothing runs
// twice.
func TestRefusedCopyAfterARestore(t *testing.T) {
	c := newCluster(t, options{servers: 3, agents: 2})
	early, first := c.agents[0], c.agents[1]
	for _, m := range append(slices.Clone(c.servers), early) {
		m.start(t)
	}
	c.waitEligible(t, early)
	saved := c.path("saved.snap")
	c.must(t, "server", "snapshot", "save", saved)
	first.start(t)
	c.waitEligible(t, first)
	c.run(t, job{name: "single", count: 2, more: quorum + apart})
	clone := c.copyAgent(t, first, func(*member, *testing.T) {})
	clone.start(t)
	clone.waitSays(t, "node "+first.Name+" is in use by the agent at "+first.address, "empty data_dir")
	before, stopWatching := c.programs(), c.watchPrograms()

	first.Kill()
	c.must(t, "server", "snapshot", "restore", saved, "--yes")
	clone.waitSays(t, "was refused for another one of that node", "remove the file refused")
	first.start(t)
	c.waitEligible(t, c.agents...)
	if n := c.node(t, first); n.Address != first.address {
		t.Errorf("the node is at %s, want %s", n.Address, first.address)
	}
	c.must(t, "settings", "resume", "restore")
	c.waitHeard(t)
	time.Sleep(2 * time.Second)
	if code := clone.terminate(t); code != 0 {
		t.Errorf("the copy's agent ended with %d", code)
	}
	seen := stopWatching()
	for id, was := range before {
		if !slices.Equal(seen[id], was) {
			t.Errorf("instance %s ran as %v and was seen as %v", id, was, seen[id])
		}
	}
}
