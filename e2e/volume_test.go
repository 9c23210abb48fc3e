package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

type transferView struct {
	ID      string `json:"id"`
	Phase   string `json:"phase"`
	From    string `json:"from"`
	To      string `json:"to"`
	Backup  string `json:"backup"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Done    int64  `json:"done_bytes"`
	Total   int64  `json:"total_bytes"`
}

type transferReply struct {
	Transfer transferView `json:"transfer"`
}

type volumeView struct {
	ID        string `json:"id"`
	Node      string `json:"node"`
	State     string `json:"state"`
	OldCopies []struct {
		Node string `json:"node"`
	} `json:"old_copies"`
}

const theVolume = "db/http/0/data"

// startVolumes starts a cluster whose agents share a directory for backups, and a job with a local volume. The returned
// member is the agent on whose node the volume is.
func startVolumes(t *testing.T, agents int) (*cluster, *member) {
	t.Helper()
	c := newCluster(t, options{servers: 3, agents: agents})
	backups := c.path("backups")
	if err := os.Mkdir(backups, 0o700); err != nil {
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
	c.run(t,
		job{name: "db", count: 1, more: "    volume \"data\" {\n      kind = \"local\"\n      path = \"" +
			c.path("place") + "\"\n    }"})
	home := c.member(c.living(t, "db")[0].Node)
	return c, home
}

// inVolumes returns the path of parts below the directory of m's volumes.
func (m *member) inVolumes(parts ...string) string {
	return filepath.Join(append([]string{m.data(), "volumes"}, parts...)...)
}

func (m *member) large() string { return m.inVolumes(theVolume, "large") }

// fillVolume writes a file of random data with the given size and returns its SHA-256 in hex.
func fillVolume(t *testing.T, path string, size int64) string {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, hash), rand.NewChaCha8([32]byte{7}), size); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

func sumOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// waitTransfer waits until a transfer has succeeded. It fails the test if the transfer fails.
func (c *cluster) waitTransfer(t *testing.T, id string) transferView {
	t.Helper()
	var v transferView
	waitFor(t, "the end of transfer "+id, 3*time.Minute, func() error {
		if err := c.get("/v1/transfers/"+id, &v); err != nil {
			return err
		}
		if v.Phase != "succeeded" && v.Phase != "failed" {
			return fmt.Errorf("it is %s, %d of %d bytes", v.Phase, v.Done, v.Total)
		}
		return nil
	})
	if v.Phase != "succeeded" {
		t.Fatalf("transfer: %+v", v)
	}
	return v
}

// waitChunks waits until at least the given number of chunks, of 4 MiB each, have arrived at the target. It reads the
// file sums, which has 32 bytes for each chunk.
func waitChunks(t *testing.T, target *member, id string, chunks int64) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%d chunks at %s", chunks, target.Name), 3*time.Minute, func() error {
		info, err := os.Stat(target.inVolumes(".transfer", id, "sums"))
		if err == nil && info.Size() < 32*chunks {
			err = fmt.Errorf("there are %d", info.Size()/32)
		}
		return err
	})
}

// attached returns the names of the agents on whose nodes instances would find the volume.
func (c *cluster) attached() (names []string) {
	for _, m := range c.agents {
		if _, err := os.Stat(m.inVolumes(theVolume)); err == nil {
			names = append(names, m.Name)
		}
	}
	return names
}

// waitAttached waits until instances would find the volume on the node of the agent want, and on no other node.
func (c *cluster) waitAttached(t *testing.T, want *member) {
	t.Helper()
	waitFor(t, "one attached copy, on "+want.Name, patience, func() error {
		if got := c.attached(); len(got) != 1 || got[0] != want.Name {
			return fmt.Errorf("attached on %v", got)
		}
		return nil
	})
}

// A volume of 1 GiB is moved. During the move, the source's agent is killed, and later the target's agent. At the end,
// exactly one copy is attached and intact. The old copy is kept aside until the finished transfer is canceled.
func TestVolumeMigrate(t *testing.T) {
	long(t)
	t.Parallel()
	c, source := startVolumes(t, 2)
	target := c.agents[0]
	if target == source {
		target = c.agents[1]
	}
	want := fillVolume(t, source.large(), 1<<30)

	c.refused(t, 5, []string{"conflict"}, "volume", "migrate", theVolume, "--to", source.Name)
	c.must(t, "volume", "migrate", theVolume, "--to", target.Name, "--dry-run")
	var reply transferReply
	c.mustJSON(t, &reply, "volume", "migrate", theVolume, "--to", target.Name, "--detach", "--request-id", "move-1")
	id := reply.Transfer.ID
	begun := time.Now()

	waitChunks(t, target, id, 30)
	source.Kill()
	source.start(t)
	t.Logf("the source's agent was killed after %s", time.Since(begun))
	waitChunks(t, target, id, 120)
	target.Kill()
	if got := c.attached(); len(got) != 1 || got[0] != source.Name {
		t.Errorf("in the middle the volume is attached on %v", got)
	}
	target.start(t)
	t.Logf("the target's agent was killed after %s", time.Since(begun))

	var again transferReply
	c.mustJSON(t, &again, "volume", "migrate", theVolume, "--to", target.Name, "--detach", "--request-id", "move-1")
	if again.Transfer.ID != id {
		t.Errorf("the same request began another transfer: %+v", again)
	}
	end := c.waitTransfer(t, id)
	t.Logf("moved %d MiB in %s", end.Total>>20, time.Since(begun))

	c.waitReady(t, "db", 1)
	if on := c.living(t, "db"); len(on) != 1 || on[0].Node != target.Name {
		t.Errorf("the instance is on %+v, want one on %s", on, target.Name)
	}
	c.waitAttached(t, target)
	if got := sumOf(t, target.large()); got != want {
		t.Errorf("what was written has the sum %s, what arrived %s", want, got)
	}
	checkOwner(t, target)
	kept, err := filepath.Glob(filepath.Dir(source.large()) + "@[0-9]*")
	if err != nil || len(kept) != 1 {
		t.Fatalf("old copies on %s: %v, %v", source.Name, kept, err)
	}
	if got := sumOf(t, filepath.Join(kept[0], "large")); got != want {
		t.Errorf("the old copy that is kept has the sum %s, want %s", got, want)
	}
	var v volumeView
	c.mustJSON(t, &v, "volume", "status", theVolume)
	if v.Node != target.Name || v.State != "in_use" || len(v.OldCopies) != 1 || v.OldCopies[0].Node != source.Name {
		t.Errorf("volume: %+v", v)
	}

	c.must(t, "volume", "cancel", id) // after the move, this removes the old copy
	waitFor(t, "the end of the old copy", patience, func() error {
		if _, err := os.Stat(kept[0]); !errors.Is(err, os.ErrNotExist) {
			return errors.Join(errors.New("it is still there"), err)
		}
		return nil
	})
}

// After the loss of a volume's node, a backup brings the data back on another node. A restore from a damaged archive is
// refused with an error that names the damaged chunk, and changes nothing.
//
// proves P20
func TestVolumeBackupAndRestore(t *testing.T) {
	long(t)
	t.Parallel()
	c, home := startVolumes(t, 2)
	other := c.agents[0]
	if other == home {
		other = c.agents[1]
	}
	want := fillVolume(t, home.large(), 48<<20)
	var reply transferReply
	c.mustJSON(t, &reply, "volume", "backup", theVolume)
	backup := reply.Transfer.Backup
	if reply.Transfer.Phase != "succeeded" || backup == "" {
		t.Fatalf("backup: %+v", reply)
	}
	c.waitReady(t, "db", 1)
	if out := c.must(t, "volume", "backups"); !strings.Contains(out, backup) || !strings.Contains(out, theVolume) {
		t.Errorf("the backup is not listed:\n%s", out)
	}

	home.die(t)
	c.must(t, "node", "status", home.Name, "--wait=offline", "--timeout", "60s")
	c.refused(t, 5, []string{"volume_in_use", "confirm-dead"}, "volume", "restore", backup,
		"--node", other.Name, "--attach")
	c.must(t, "node", "confirm-dead", home.Name, "--force")

	archive := c.path("backups", backup, "data.tar")
	damage(t, archive, 17<<20)
	c.refused(t, 22, []string{"integrity_check_failed", "chunk 4"}, "volume", "restore", backup,
		"--node", other.Name, "--attach")
	if got := c.attached(); len(got) != 1 || got[0] != home.Name {
		t.Errorf("after a restore that failed the volume is attached on %v", got)
	}
	damage(t, archive, 17<<20) // flips the same bit back, which repairs the archive

	c.must(t, "volume", "restore", backup, "--node", other.Name, "--attach")
	c.waitReady(t, "db", 1)
	if on := c.living(t, "db"); len(on) != 1 || on[0].Node != other.Name {
		t.Errorf("the instance is on %+v, want one on %s", on, other.Name)
	}
	if got := sumOf(t, other.large()); got != want {
		t.Errorf("what was written has the sum %s, what was restored %s", want, got)
	}
	checkOwner(t, other)

	home.start(t) // the lost node returns, and its older copy must not stay attached
	c.waitAttached(t, other)
}

// checkOwner asserts that the volume's file on m belongs to the user of the volume's directory, which is not root. The
// test wrote the file as root on another node, before the transfer.
func checkOwner(t *testing.T, m *member) {
	t.Helper()
	var owners [2]uint32
	for i, path := range []string{filepath.Dir(m.large()), m.large()} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		owners[i] = info.Sys().(*syscall.Stat_t).Uid
	}
	if owners[0] != owners[1] || os.Geteuid() == 0 && owners[0] == 0 {
		t.Errorf("on %s the volume belongs to %d, a file of root's in it to %d", m.Name, owners[0], owners[1])
	}
}

// damage flips one bit of the byte at the given position of a file.
func damage(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{b[0] ^ 1}, at); err != nil {
		t.Fatal(err)
	}
}
