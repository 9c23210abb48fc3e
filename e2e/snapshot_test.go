package e2e

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"strings"
	"testing"
)

// A snapshot that is corrupt or of a newer format is refused, the error names the file, and the state does not change.
// A good snapshot brings the state back, and no instance is stopped before a person confirms the restore.
func testSnapshots(t *testing.T, c *cluster) {
	c.run(t, job{name: "kept", count: 2})
	c.must(t, "node", "label", "n1", "when=before")
	good := c.path("good.snap")
	c.must(t, "server", "snapshot", "save", good)
	c.must(t, "server", "snapshot", "inspect", good)
	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	c.run(t, job{name: "later", count: 2})
	c.must(t, "node", "label", "n1", "when=after")
	running := identities(c.instances())

	flipped := append([]byte{}, text...)
	flipped[len(flipped)/2] ^= 0x10
	c.undisturbed(t, func() {
		for name, bad := range map[string][]byte{
			"flipped": flipped, "cut": text[:len(text)-20], "empty": nil,
			"foreign": []byte(strings.Repeat("not a snapshot\n", 100)),
			"newer":   newerFormat(text), "longer": append(append([]byte{}, text...), "tail"...),
		} {
			path := c.path(name + ".snap")
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"inspect", path}, {"restore", path, "--yes"}} {
				r := c.cli(t, append([]string{"server", "snapshot"}, args...)...)
				if r.code == 0 || !strings.Contains(r.err, name+".snap") {
					t.Errorf("a snapshot that is %s: %v", name, r)
				}
				if name == "newer" && !strings.Contains(r.err, "format") {
					t.Errorf("the refusal does not speak of the format: %v", r)
				}
			}
		}
	})

	c.must(t, "server", "snapshot", "restore", good, "--yes")
	if n := c.node(t, c.agents[0]); n.Labels["when"] != "before" {
		t.Errorf("after the restore: %+v", n)
	}
	c.waitEligible(t, c.agents...)
	c.waitReady(t, "kept", 2)
	if now := identities(c.instances()); !maps.Equal(running, now) {
		t.Errorf("a restore stopped or started something: before %v, now %v", running, now)
	}
	if !strings.Contains(c.must(t, "status"), "a snapshot was restored") {
		t.Errorf("the status does not tell that a restore waits to be confirmed:\n%s", c.must(t, "status"))
	}
	if code := c.cli(t, "settings", "resume").code; code != 5 {
		t.Errorf("resume without a name ended with %d, want 5: a restore must be named", code)
	}
	if would := c.must(t, "settings", "resume", "restore", "--dry-run"); strings.Count(would,
		" later ") != len(c.instancesOf("later")) || strings.Count(would, " later ") == 0 {
		t.Errorf("the dry run does not list the instances of the job later, which the snapshot does not know:\n%s", would)
	}
	c.must(t, "settings", "resume", "restore")
	waitFor(t, "the end of what the restored state does not know", patience, func() error {
		if left := c.instancesOf("later"); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
	c.waitReady(t, "kept", 2)
}

// newerFormat returns the snapshot with a format in its header that no release can read yet. The checksum of the header
// is correct.
func newerFormat(snapshot []byte) []byte {
	newer := append([]byte{}, snapshot...)
	const at = len("outspan\n")
	binary.BigEndian.PutUint16(newer[at:], 99)
	binary.BigEndian.PutUint32(newer[at+2:], crc32.Checksum(newer[:at+2], crc32.MakeTable(crc32.Castagnoli)))
	return newer
}

// No member accepts the data directory of another cluster.
func testForeignData(t *testing.T, c *cluster) {
	other := startCluster(t, options{servers: 1, agents: 1})
	for _, m := range other.members() {
		if code := m.terminate(t); code != 0 {
			t.Errorf("%s ended with %d", m.Name, code)
		}
	}
	t.Run("agent", func(t *testing.T) {
		c.must(t, "tls", "cert", "create", "--dir", c.path("tls"), "--agent", "n5")
		network := strings.Split(c.agents[0].address, ".")
		c.takeForeign(t, c.newMember("agent", "n5", strings.Join(append(network[:3:3], "205"), ".")), other.agents[0], false)
	})
	t.Run("server", func(t *testing.T) {
		s := without(c.servers, c.leader(t))[0]
		defer func() {
			s.Kill()
			s.configure(t, s.settings())
			s.start(t)
			c.waitVoters(t, 3)
		}()
		s.Kill()
		c.takeForeign(t, s, other.servers[0], true)
	})
}

// takeForeign starts m with the data directory of theirs, a member of another cluster. m must report the mistake. If
// ends is true, as for a server, m must also exit with an error. An agent keeps running. The cluster c must not change.
func (c *cluster) takeForeign(t *testing.T, m, theirs *member, ends bool) {
	t.Helper()
	settings := m.settings()
	settings["data_dir"] = fmt.Sprintf("%q", theirs.data())
	m.configure(t, settings)
	c.unchanged(t, func() {
		m.start(t)
		defer m.Kill()
		if ends && m.exitCode(t) == 0 {
			t.Error("it ended with code 0")
		}
		m.waitSays(t, "belongs to", "cluster")
	})
}
