package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

// Limits for an idle server with the default settings. With settings that detect failures faster, a server needs more
// CPU time, because it handles more packets.
const (
	idleCore = 0.02     // share of one core
	idleRSS  = 60 << 20 // bytes
)

// TestIdle watches a settled cluster for the time in OUTSPAN_IDLE (make idle: 10 min).
//
// A settled cluster writes nothing to its log, and its servers use little CPU time and memory.
func TestIdle(t *testing.T) {
	text := os.Getenv("OUTSPAN_IDLE")
	if text == "" {
		t.Skip("it watches for as long as OUTSPAN_IDLE says: make idle")
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	c := startCluster(t, options{servers: 3, agents: 4, unhurried: true})
	c.run(t, job{name: "web", count: 8, expose: c.freePort(t)})
	c.waitSettled(t)

	before, index, began := c.written(t), c.status(t).Index, time.Now()
	var cpu []time.Duration
	for _, s := range c.servers {
		cpu = append(cpu, s.usage(t).CPU)
	}
	time.Sleep(length)
	passed := time.Since(began)
	for i, s := range c.servers {
		used := s.usage(t)
		core, rss := (used.CPU-cpu[i]).Seconds()/passed.Seconds(), used.Memory
		t.Logf("%s in %s: %.2f %% of a core, %.1f MB resident", s.Name, passed.Round(time.Second),
			100*core, float64(rss)/(1<<20))
		if core >= idleCore || rss >= idleRSS {
			t.Errorf("%s uses %.2f %% of a core (want < %.0f) and %.1f MB (want < %d)", s.Name, 100*core, 100*idleCore,
				float64(rss)/(1<<20), idleRSS>>20)
		}
	}
	for path, was := range before {
		if is := c.written(t)[path]; is != was {
			t.Errorf("%s was written: %s, before %s", path, is, was)
		}
	}
	now := c.status(t).Index
	t.Logf("index %d before and %d after", index, now)
	if now != index {
		t.Errorf("the index was %d and is %d: %+v", index, now, c.events(t))
	}
}

// waitSettled waits until the servers have written nothing for two seconds.
func (c *cluster) waitSettled(t *testing.T) {
	t.Helper()
	last, since := fmt.Sprint(c.written(t)), time.Now()
	waitFor(t, "two seconds without a write", patience, func() error {
		if now := fmt.Sprint(c.written(t)); now != last {
			last, since = now, time.Now()
		}
		if quiet := time.Since(since); quiet < 2*time.Second {
			return fmt.Errorf("quiet for %s", quiet)
		}
		return nil
	})
}

// written returns the size and the time of the last write of each file in the servers' data directories.
func (c *cluster) written(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, s := range c.servers {
		err := filepath.WalkDir(s.data(), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			found[path] = fmt.Sprintf("%d bytes at %s", info.Size(), info.ModTime().Format(time.StampMicro))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !regexp.MustCompile(`raft[^ ]*\.db`).MatchString(fmt.Sprint(found)) {
		t.Fatalf("where is the log? %v", found)
	}
	return found
}

// usage returns the memory that the member's process uses, and the CPU time that it has used.
func (m *member) usage(t *testing.T) procs.Usage {
	t.Helper()
	used, err := m.Usage()
	if err != nil {
		t.Fatal(err)
	}
	return used
}
