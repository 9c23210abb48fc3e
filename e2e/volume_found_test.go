package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// movedSinceSnapshot saves a snapshot and then moves the volume from one node to another.
func movedSinceSnapshot(t *testing.T) (c *cluster, first, second *member, seen starts, saved string) {
	t.Helper()
	c, first, seen = startRemembering(t)
	c.generation(t, first, "one")
	seen.want(t, "one")
	saved = c.path("saved.snap")
	c.must(t, "server", "snapshot", "save", saved)
	second = c.others(first)[0]
	c.must(t, "volume", "migrate", theVolume, "--to", second.Name)
	seen.want(t, "one", "one")
	return c, first, second, seen, saved
}

// A snapshot is saved and the volume moves. When the snapshot is restored, the volume's instance does not run. The
// restored state knows only the old home, where the directory is missing, so the instance is not started there. The
// data can be listed, and the command that is shown brings it into use.
func TestVolumeFound(t *testing.T) {
	long(t)
	c, _, second, seen, saved := movedSinceSnapshot(t)
	c.generation(t, second, "two")
	if out := c.must(t, "volume", "find"); strings.Contains(out, theVolume) {
		t.Errorf("data in use or kept is listed:\n%s", out)
	}
	c.must(t, "job", "scale", "db/http", "0")
	waitFor(t, "the end of the instance", patience, func() error {
		if living := c.living(t, "db"); len(living) > 0 || len(c.instances(second)) > 0 {
			return fmt.Errorf("%+v", living)
		}
		return nil
	})

	c.must(t, "server", "snapshot", "restore", saved, "--yes")
	c.waitEligible(t, c.agents...)
	c.waitHeard(t)
	found := c.attachCommand(t, second)
	if out := c.must(t, "settings", "resume", "restore", "--dry-run"); !strings.Contains(out, strings.Join(found, " ")) {
		t.Errorf("the dry run does not name the data on %s:\n%s", second.Name, out)
	}
	c.refused(t, 5, []string{"settings resume restore"}, found...)
	c.must(t, "settings", "resume", "restore")
	waitFor(t, "the refusal to start without the data", patience, func() error {
		if out := c.must(t, "why", "db"); !strings.Contains(out, "volume find") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	seen.stays(t, time.Second)
	c.refused(t, 4, []string{"volume find"}, "volume", "attach", theVolume, "--node", second.Name, "--epoch", "7")
	c.must(t, found...)
	seen.want(t, "one", "one", "two")
	// the replaced data is now kept as an old copy
	if out := c.must(t, "volume", "find"); strings.Contains(out, theVolume) {
		t.Errorf("data in use or kept is listed:\n%s", out)
	}
	c.must(t, "instance", "restart", c.living(t, "db")[0].ID)
	seen.want(t, "one", "one", "two", "two")
}

// A snapshot is saved and the volume moves. When the snapshot is restored, the newer copy is gone. Only the copy that
// the move put aside is left. That copy is listed, and the command that is shown puts it back into its place.
func TestVolumeFoundAside(t *testing.T) {
	long(t)
	c, first, second, seen, saved := movedSinceSnapshot(t)
	second.die(t)

	c.must(t, "server", "snapshot", "restore", saved, "--yes")
	c.must(t, "settings", "resume", "restore")
	c.must(t, "node", "status", second.Name, "--wait=offline", "--timeout", "60s")
	c.must(t, "node", "confirm-dead", second.Name, "--force")
	c.must(t, append(c.attachCommand(t, first), "--timeout", "60s")...)
	seen.want(t, "one", "one", "one")
	if out := c.must(t, "volume", "find"); strings.Contains(out, theVolume) {
		t.Errorf("data in use is listed:\n%s", out)
	}
}

// attachCommand returns the command that volume find shows for bringing the data on a node into use.
func (c *cluster) attachCommand(t *testing.T, m *member) []string {
	t.Helper()
	var command []string
	waitFor(t, "data of "+theVolume+" found on "+m.Name, patience, func() error {
		out := c.must(t, "volume", "find")
		for line := range strings.Lines(out) {
			_, say, ok := strings.Cut(line, "to put it to use: outspan ")
			if ok && strings.Contains(say, theVolume+" --node "+m.Name+" ") {
				command = strings.Fields(say)
				return nil
			}
		}
		return fmt.Errorf("%s", out)
	})
	return command
}
