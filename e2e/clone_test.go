package e2e

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// A machine is copied with its data directory, and the copy is started at another address. Its agent is refused, says by whom the node is in use, and disturbs
// nothing, however often it asks.
func TestClonedMachine(t *testing.T) {
	c := startCluster(t, options{servers: 3, agents: 2})
	c.run(t, job{name: "single", count: 2, more: "    role = \"quorum\"\n    role_check {\n      exec     = [\"/bin/echo\", \"{}\"]\n      interval = \"1s\"\n    }\n" + apart})
	c.run(t, job{name: "web", count: 2})
	first := c.agents[0]
	parts := strings.Split(first.address, ".")
	parts[3] = "77"
	clone := c.newMember("agent", "clone", strings.Join(parts, "."))
	clone.cert = first.cert
	if out, err := relatives.output(exec.Command("cp", "-a", first.data(), clone.data()), time.Minute); err != nil {
		t.Fatalf("copy the data directory: %v: %s", err, out)
	}
	s := clone.settings()
	s["name"] = "\"" + first.name + "\""
	s["agent"] = strings.Replace(s["agent"], c.name, c.name+"-clone", 1)
	clone.configure(t, s)
	before, stopWatching := c.programs(), c.watchPrograms()
	epoch := c.node(t, first).Epoch

	clone.start(t)
	clone.waitSays(t, "node "+first.name+" is in use by the agent at "+first.address, "empty data_dir")
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
