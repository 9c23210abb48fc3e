package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// movedSinceSnapshot starts the job remembering, saves a snapshot, and then moves the volume from the node first to the
// node second. It returns the path of the snapshot as saved.
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

// A snapshot is saved, the volume moves, and its job is scaled to 0. The restored snapshot knows only the volume's old
// home. The data is missing there, so the instance is not started. The command volume find lists the moved data and
// shows another command, which brings the data into use.
func TestVolumeFound(t *testing.T) {
	long(t)
	t.Parallel()
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
	// volume find lists neither the attached data nor the data that it replaced, which is kept as an old copy
	if out := c.must(t, "volume", "find"); strings.Contains(out, theVolume) {
		t.Errorf("data in use or kept is listed:\n%s", out)
	}
	c.must(t, "instance", "restart", c.living(t, "db")[0].ID)
	seen.want(t, "one", "one", "two", "two")
}

// A snapshot is saved, the volume moves, and its new node dies before the snapshot is restored. Only the copy that the
// move put aside on the old node is left. The command volume find lists this copy and shows another command, which
// brings the copy into use.
func TestVolumeFoundAside(t *testing.T) {
	long(t)
	t.Parallel()
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

// attachCommand waits until volume find lists data on m's node, and returns the command that it shows for this data.
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
