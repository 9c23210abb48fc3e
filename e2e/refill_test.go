package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// filled is the file of a job with the role quorum. At each start, a member appends one line to the file %[1]s: its
// identity and the data that it found in its volume.
const filled = `job "agency" {
  group "main" {
    count = 3
    role  = "quorum"
    exec {
      command = "/bin/sh"
      args    = ["-c", "cd $OUTSPAN_VOLUME_DATA; echo $OUTSPAN_MEMBER_ID:$(cat mine 2>/dev/null || echo empty) >> %[1]s; echo $OUTSPAN_MEMBER_ID > mine; exec sleep 100000"]
    }
    resources {
      memory = "16MiB"
    }
    role_check {
      exec = ["/bin/sh", "-c", "echo '{\"leader\":false}'"]
    }
    volume "data" {
      kind = "local"
      path = "/tmp/outspan-agency"
    }
  }
}
`

// The machine of a member with a local volume is confirmed dead. The same member becomes ready elsewhere with an empty
// volume. When the machine returns, the member still runs only once. The commands volume ls and volume status list the
// member's old data on the returned machine. The data is used again only after a person runs the command that volume
// status shows.
//
// proves A8, P2
func TestRefill(t *testing.T) {
	long(t)
	t.Parallel()
	c := newCluster(t, options{servers: 3, agents: 4})
	seen := c.path("seen")
	if err := os.WriteFile(seen, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(seen, 0o666); err != nil { //nolint:gosec // the program writes it as another user
		t.Fatal(err)
	}
	for _, m := range c.members() {
		m.start(t)
	}
	c.waitEligible(t, c.agents...)
	c.must(t, "job", "run", c.writeText(t, "agency.hcl", fmt.Sprintf(filled, seen)))
	c.waitReady(t, "agency", 3)
	lost := c.living(t, "agency")[0]
	home := c.member(lost.Node)
	volume := fmt.Sprintf("agency/main/%d/data", lost.Slot)

	home.die(t)
	c.must(t, "node", "status", home.Name, "--wait=offline", "--timeout", "60s")
	starts(seen).stays(t, 2*time.Second) // no replacement starts before a person confirms that the machine is off
	c.must(t, "node", "confirm-dead", home.Name, "--force")
	c.waitReady(t, "agency", 3)
	noted := starts(seen).read()
	if last := noted[len(noted)-1]; len(noted) != 4 || !strings.HasSuffix(last, ":empty") ||
		strings.Count(strings.Join(noted, " "), last) != 2 {
		t.Errorf("the members started as %q; one of the first three should have begun anew, empty", noted)
	}

	home.start(t)
	c.waitEligible(t, home)
	starts(seen).stays(t, 3*time.Second)
	if n := len(c.instances(home)); n != 0 {
		t.Errorf("%d programs of the members run on the machine that returned", n)
	}
	if out := c.must(t, "volume", "ls"); !strings.Contains(out, "LEFT BEHIND ON") || !strings.Contains(out, home.Name) {
		t.Errorf("volume ls does not say where the data was left:\n%s", out)
	}
	out := c.must(t, "volume", "status", volume)
	if !strings.Contains(out, "outspan volume attach "+volume+" --node "+home.Name+" --epoch ") {
		t.Errorf("volume status does not say how to put it to use:\n%s", out)
	}
	_, command, _ := strings.Cut(out, "outspan ")
	c.must(t, append(strings.Fields(command)[:7:7], "--timeout", "60s")...)
	c.waitReady(t, "agency", 3)
	if noted := starts(seen).read(); strings.HasSuffix(noted[len(noted)-1], ":empty") {
		t.Errorf("after the data was put to use the members started as %q", noted)
	}
	if out := c.must(t, "volume", "status", volume); strings.Contains(out, "left behind") {
		t.Errorf("data in use is said to be left behind:\n%s", out)
	}
}
