package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

// TestAgentUpgrade sends 50 requests a second, each over a new connection, to a port that an agent exposes. It keeps
// one more connection open. The agent is killed, stopped, replaced by another version, and restarted while all servers
// are dead. No request fails, and the open connection never breaks.
func TestAgentUpgrade(t *testing.T) {
	long(t)
	t.Parallel()
	c := startCluster(t, options{servers: 3, agents: 2})
	port := c.freePort(t)
	c.run(t, job{name: "web", count: 2, expose: port, more: "    distinct { attribute = \"node.id\" }\n"})
	m := c.agents[0]
	waitFor(t, "the exposed port", patience, func() error { return serves(m, port) })
	newer := otherVersion(t, c.path("newer"))
	line := c.holdLine(t, m, port)
	requests := fifty(m, port)
	pause := func() { time.Sleep(3 * time.Second) } // requests are sent during this time

	pause()
	first := c.doorsOf(m)
	m.Kill()
	pause()
	m.start(t)
	c.waitEligible(t, m)
	pause()
	if code := m.terminate(t); code != 0 {
		t.Errorf("the agent ended with %d", code)
	}
	pause()
	m.start(t)
	c.waitEligible(t, m)
	pause()
	if text, err := os.ReadFile(m.Log); err != nil ||
		strings.Count(string(text), "the agent's last run ended without a shutdown") != 1 {
		t.Errorf("its log does not tell once that it was killed once (%v)", err)
	}
	if now := c.doorsOf(m); len(first) != 1 || !slices.Equal(now, first) {
		t.Errorf("the door was %v and is %v", first, now)
	}

	m.terminate(t)
	m.bin = newer
	m.start(t)
	waitFor(t, "the door of the newer version", patience, func() error {
		if now := c.doorsOf(m); len(now) != 2 {
			return fmt.Errorf("the doors are %v, want the new one and the old one with its connection", now)
		}
		return nil
	})
	c.waitEligible(t, m)
	pause()

	for _, s := range c.servers {
		s.Kill()
	}
	m.Kill()
	pause()
	m.start(t)
	pause()
	for _, s := range c.servers {
		s.start(t)
	}
	c.waitVoters(t, 3)
	c.waitEligible(t, m)
	pause()

	sent, failed := requests()
	if len(failed) > 0 || sent < 20*50 {
		t.Errorf("%d of %d requests failed: %.2000s", len(failed), sent, strings.Join(failed, "\n"))
	}
	t.Logf("%d requests", sent)
	if err := line(); err != nil {
		t.Errorf("the connection that was held: %v", err)
	}
	waitFor(t, "the end of the first door", patience, func() error {
		if now := c.doorsOf(m); len(now) != 1 || slices.Equal(now, first) {
			return fmt.Errorf("the doors are %v", now)
		}
		return nil
	})
	c.must(t, "job", "stop", "web", "--purge")
	waitFor(t, "the end of the last door", patience, func() error {
		if now := c.doorsOf(c.agents...); len(now) != 0 {
			return fmt.Errorf("the doors are %v", now)
		}
		return nil
	})
}

// otherVersion builds the program with another version and returns its path.
func otherVersion(t *testing.T, path string) string {
	t.Helper()
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-X main.version=newer", "-o", path,
		"github.com/outspan/outspan/cmd/outspan")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := output(cmd, 5*time.Minute); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	return path
}

// fifty sends 50 requests a second to an exposed port until stop is called. stop returns the number of requests, and
// the failures.
func fifty(m *member, port int) (stop func() (int, []string)) {
	done, began := make(chan struct{}), time.Now()
	var mu sync.Mutex
	var failed []string
	sent := 0
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-done:
				return
			}
			sent++
			all.Go(func() {
				at := time.Since(began)
				if err := serves(m, port); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = append(failed, fmt.Sprintf("after %s: %v", at, err))
				}
			})
		}
	})
	return func() (int, []string) {
		close(done)
		all.Wait()
		return sent, failed
	}
}

// doorsOf returns the process ids of the doors of the listed agents, in ascending order.
func (c *cluster) doorsOf(on ...*member) (pids []int) {
	for pid, p := range procs.Descendants() {
		args := strings.Split(p.Args(), "\x00")
		if p.Zombie || len(args) < 3 || args[1] != "door" {
			continue
		}
		for _, m := range on {
			if args[2] == filepath.Join(m.data(), "door") {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return pids
}
