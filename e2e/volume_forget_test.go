package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// remembering is the file of a job. At each start, its program appends the text that it finds in its volume, or
// "empty", to the file %[1]s.
const remembering = `job "db" {
  group "http" {
    count = 1
    exec {
      command = "/bin/sh"
      args    = ["-c", "cat $OUTSPAN_VOLUME_DATA/generation 2>/dev/null >> %[1]s || echo empty >> %[1]s; exec sleep 100000"]
    }
    resources {
      memory = "32MiB"
    }
    volume "data" {
      kind = "local"
      path = "%[2]s"
    }
  }
}
`

// A machine with a local volume is confirmed dead, and the volume is restored on a second machine from a backup. The
// first machine is forgotten, and returns with its old directory. Then the second machine dies. Until a person gives
// the data up with --lose-data, no program starts on data older than the volume's newest, or on an empty directory.
func TestVolumeForgottenMachine(t *testing.T) {
	long(t)
	t.Parallel()
	c, first, seen := startRemembering(t)
	backup := c.generation(t, first, "one")
	c.generation(t, first, "two") // written after the backup

	first.die(t)
	c.must(t, "node", "status", first.Name, "--wait=offline", "--timeout", "60s")
	c.refused(t, 5, []string{"--force"}, "node", "confirm-dead", first.Name)
	c.must(t, "node", "confirm-dead", first.Name, "--force")
	c.refused(t, 5, []string{theVolume, "--lose-data"}, "node", "forget", first.Name)
	second := c.others(first)[0]
	c.must(t, "volume", "restore", backup, "--node", second.Name, "--attach")
	seen.want(t, "one", "one")
	c.generation(t, second, "three")
	c.must(t, "node", "forget", first.Name)

	first.start(t)
	c.waitEligible(t, first)
	seen.stays(t, 3*time.Second)
	second.die(t)
	c.must(t, "node", "status", second.Name, "--wait=offline", "--timeout", "60s")
	c.must(t, "node", "confirm-dead", second.Name, "--force")
	seen.stays(t, 3*time.Second) // "two" on the first machine is old, and no third machine has data
	if out := c.must(t, "why", "db"); !strings.Contains(out, second.Name) {
		t.Errorf("nothing says where the data is:\n%s", out)
	}
	c.refused(t, 5, []string{theVolume, "--lose-data"}, "node", "forget", second.Name)

	second.start(t)
	seen.want(t, "one", "one", "three")
	second.die(t)
	c.must(t, "node", "status", second.Name, "--wait=offline", "--timeout", "60s")
	c.must(t, "node", "confirm-dead", second.Name, "--force")
	c.must(t, "node", "forget", second.Name, "--lose-data", "db/http")
	seen.want(t, "one", "one", "three", "empty")
}

// starts is the path of the file to which the program of the job remembering appends a line at each start.
type starts string

func startRemembering(t *testing.T) (*cluster, *member, starts) {
	t.Helper()
	c := newCluster(t, options{servers: 3, agents: 3})
	backups, seen := c.path("backups"), c.path("seen")
	if err := errors.Join(os.Mkdir(backups, 0o700), os.WriteFile(seen, nil, 0o600),
		os.Chmod(seen, 0o666)); err != nil { //nolint:gosec // the program writes it as another user
		t.Fatal(err)
	}
	for _, m := range c.agents {
		s := m.settings()
		s["agent"] += fmt.Sprintf("\n  backup_dir = %q", backups)
		m.configure(t, s)
	}
	for _, m := range c.members() {
		m.start(t)
	}
	c.waitEligible(t, c.agents...)
	c.must(t, "job", "run", c.writeText(t, "db.hcl", fmt.Sprintf(remembering, seen, c.path("place"))))
	c.waitReady(t, "db", 1)
	home := c.member(c.living(t, "db")[0].Node)
	if err := os.Truncate(seen, 0); err != nil { // drop the line of the first start, which found no data
		t.Fatal(err)
	}
	return c, home, starts(seen)
}

// generation writes the given text into the volume on home. If the text is "one", generation also makes a backup and
// returns the backup's id. For other texts it returns "".
func (c *cluster) generation(t *testing.T, home *member, text string) string {
	t.Helper()
	if err := os.WriteFile(home.inVolumes(theVolume, "generation"), []byte(text+"\n"),
		0o644); err != nil { //nolint:gosec // the program reads it as another user
		t.Fatal(err)
	}
	if text != "one" {
		return ""
	}
	var reply transferReply
	c.mustJSON(t, &reply, "volume", "backup", theVolume)
	c.waitReady(t, "db", 1)
	return reply.Transfer.Backup
}

func (c *cluster) others(m *member) []*member {
	return slices.DeleteFunc(slices.Clone(c.agents), func(o *member) bool { return o == m })
}

func (s starts) read() []string {
	raw, err := os.ReadFile(string(s))
	if err != nil {
		return []string{err.Error()}
	}
	return strings.Fields(string(raw))
}

// want waits until the lines of all starts, in order, are the given generations.
func (s starts) want(t *testing.T, generations ...string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("starts on %q", generations), patience, func() error {
		if got := s.read(); !slices.Equal(got, generations) {
			return fmt.Errorf("they are on %q", got)
		}
		return nil
	})
}

// stays asserts that the program does not start again within the given time.
func (s starts) stays(t *testing.T, during time.Duration) {
	t.Helper()
	before := s.read()
	for until := time.Now().Add(during); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if got := s.read(); !slices.Equal(got, before) {
			t.Fatalf("the program was started on %q, before %q", got, before)
		}
	}
}
