package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"
)

// An old state is restored, or recovered into three new servers with other names. After the state was saved, a volume
// was moved, a job was submitted, instances were evicted (one of them with a replicated volume), and agents were
// restarted. The servers list the instances that they don't know, and say which of these the operator's confirmation
// will stop. It stops exactly these. All other instances continue, and no request of a client fails. The volume stays
// where it was moved to, and in the end the servers' state agrees with what runs.
func TestOldSnapshot(t *testing.T) {
	long(t)
	t.Parallel()
	t.Run("restored", func(t *testing.T) {
		testOldSnapshot(t, func(c *cluster, saved string) { c.must(t, "server", "snapshot", "restore", saved, "--yes") })
	})
	t.Run("recovered", func(t *testing.T) {
		testOldSnapshot(t, func(c *cluster, saved string) { c.loseServers(t, saved) })
	})
}

func testOldSnapshot(t *testing.T, restore func(c *cluster, saved string)) {
	c, first, seen := startRemembering(t)
	port := c.freePort(t)
	jobs := c.everyRole(port)
	for _, j := range jobs {
		c.run(t, j)
	}
	jobs = append(jobs, job{name: "db", count: 1})
	c.generation(t, first, "one")
	seen.want(t, "one")
	saved := c.path("saved.snap")
	c.must(t, "server", "snapshot", "save", saved)

	second := c.others(first)[0]
	c.generation(t, first, "two")
	c.must(t, "volume", "migrate", theVolume, "--to", second.Name)
	seen.want(t, "one", "two")
	c.generation(t, second, "three")
	later := job{name: "later", count: 2}
	c.run(t, later)
	had := c.living(t, "web")
	c.must(t, "instance", "evict", had[0].ID)
	copies := c.living(t, "copies")
	moved := copies[0].ID
	c.must(t, "instance", "evict", moved)
	waitFor(t, "the move of "+moved, patience, func() error {
		if on := c.living(t, "copies"); len(on) != 2 || slices.ContainsFunc(on, func(i instanceView) bool {
			return i.ID == moved || !i.Ready
		}) {
			return fmt.Errorf("%+v", on)
		}
		return nil
	})
	for _, j := range append(jobs, later) {
		c.waitReady(t, j.name, j.count)
	}
	for _, m := range []*member{first, second} {
		m.Kill()
		m.start(t)
	}
	c.waitEligible(t, c.agents...)
	c.waitHeard(t)
	lost, db := map[string]bool{}, c.living(t, "db")[0].ID
	kept := map[string]bool{db: true}
	for _, i := range c.living(t, "copies") {
		if !slices.ContainsFunc(copies, func(was instanceView) bool { return was.ID == i.ID }) {
			kept[i.ID] = true
		}
	}
	for _, i := range slices.Concat(c.living(t, "later"), c.living(t, "web")) {
		lost[i.ID] = true
	}
	for _, i := range had {
		delete(lost, i.ID)
	}
	before, asks := c.programs(), fifty(c.agents[2], port)

	restore(c, saved)
	c.waitEligible(t, c.agents...)
	c.waitHeard(t)
	c.undisturbedPrograms(t, before, nil)
	would := map[string]bool{}
	waitFor(t, "the list of what will be stopped", patience, func() error {
		var list struct {
			Items []struct {
				Instance string `json:"instance"`
				Kept     bool   `json:"kept"`
			} `json:"items"`
		}
		clear(would)
		if err := c.get("/v1/unknown-instances", &list); err != nil {
			return err
		}
		for _, i := range list.Items {
			if i.Kept != kept[i.Instance] {
				return fmt.Errorf("instance %s is kept: %v", i.Instance, i.Kept)
			}
			if !i.Kept {
				would[i.Instance] = true
			}
		}
		if !maps.Equal(would, lost) {
			return fmt.Errorf("it has %v, not known are %v", would, lost)
		}
		return nil
	})
	c.must(t, "settings", "resume", "restore")
	confirmed := time.Now()
	waitFor(t, "what the servers say to be what runs", 30*time.Second, func() error { return c.asTold(jobs) })
	t.Logf("%s after the confirmation what the servers say is what runs", time.Since(confirmed).Round(10*time.Millisecond))
	time.Sleep(time.Until(confirmed.Add(3 * time.Second))) // by then everything that the confirmation stops is gone
	c.undisturbedPrograms(t, before, lost)
	sent, failed := asks()
	if len(failed) > 0 || sent < 50 {
		t.Errorf("%d of %d requests failed: %.2000v", len(failed), sent, failed)
	}
	c.waitAttached(t, second)
	seen.stays(t, time.Second)
	c.must(t, "instance", "restart", db)
	seen.want(t, "one", "two", "three")
	c.run(t, later)
}

// undisturbedPrograms asserts that the programs that ran before still run. It skips the instances in except.
func (c *cluster) undisturbedPrograms(t *testing.T, before map[string][]string, except map[string]bool) {
	t.Helper()
	now := c.programs()
	for id, was := range before {
		if !except[id] && !slices.Equal(now[id], was) {
			t.Errorf("instance %s ran as %v and runs as %v", id, was, now[id])
		}
	}
}

// loseServers kills all servers and removes their data. It then recovers a saved state into new servers with other
// names, at the same addresses.
func (c *cluster) loseServers(t *testing.T, saved string) {
	t.Helper()
	old := c.servers
	for _, s := range old {
		s.Kill()
		if err := os.RemoveAll(s.data()); err != nil {
			t.Fatal(err)
		}
	}
	c.servers = nil
	for i, s := range old {
		fresh := c.newMember("server", fmt.Sprintf("fresh%d", i+1), s.address)
		c.must(t, "tls", "cert", "create", "--dir", c.path("tls"), "--server", fresh.Name)
		c.servers = append(c.servers, fresh)
	}
	for _, s := range c.servers {
		s.configure(t, s.settings())
	}
	first := c.servers[0]
	c.refused(t, 2, []string{"--yes"}, "server", "recover", "--data-dir", first.data(), "--advertise",
		first.api(), "--snapshot", saved)
	c.must(t, "server", "recover", "--data-dir", first.data(), "--advertise", first.api(), "--snapshot", saved, "--yes")
	for _, s := range c.servers {
		s.start(t)
	}
	c.waitVoters(t, 3)
}

// asTold returns an error if the instances that the servers list are not those that run, or not those that the
// jobs want.
func (c *cluster) asTold(jobs []job) error {
	var l struct{ Items []instanceView }
	if err := c.get("/v1/instances", &l); err != nil {
		return err
	}
	want, have, known := map[string]int{}, map[string]int{}, map[string]string{}
	for _, j := range jobs {
		want[j.name] = j.count
	}
	for _, i := range l.Items {
		if i.Desired != "running" || !i.Ready {
			return fmt.Errorf("%+v", i)
		}
		have[i.Job]++
		known[i.ID] = i.Node
	}
	if !maps.Equal(want, have) {
		return fmt.Errorf("wanted %v, ready %v", want, have)
	}
	for _, m := range c.agents {
		for id := range c.instances(m) {
			if known[id] != m.Name {
				return fmt.Errorf("%s runs on %s, and the servers have it on %q", id, m.Name, known[id])
			}
			delete(known, id)
		}
	}
	if len(known) > 0 {
		return fmt.Errorf("the servers have %v, which don't run", known)
	}
	return nil
}
