package e2e

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
)

// sparseBytes is the size of the volume's file. Nearly all of the file is a hole, so it takes little disk space.
const sparseBytes = 100 << 30

// sparseAt lists the positions in the file that have data, ten bytes each.
var sparseAt = []int64{0, 1 << 30, 50<<30 - 5, sparseBytes - 10}

// A volume of 100 GiB, nearly all of it a hole, is moved, backed up and restored on slow disks. During each of these
// transfers, an agent is killed at least once. At that moment, exactly one copy is where instances would find it. At
// the end, the content is intact.
func TestVolumeSparse(t *testing.T) {
	long(t)
	t.Parallel()
	require(t, "strace")
	c, source := startVolumes(t, 2)
	target := c.agents[0]
	if target == source {
		target = c.agents[1]
	}
	writeSparse(t, source.large())
	for _, m := range c.agents {
		m.slowDisk(t)
	}

	var reply transferReply
	c.mustJSON(t, &reply, "volume", "migrate", theVolume, "--to", target.Name, "--detach")
	id, begun := reply.Transfer.ID, time.Now()
	waitChunks(t, target, id, 1000)
	c.killAndStart(t, target, source)
	waitChunks(t, target, id, 5000)
	c.killAndStart(t, source, source)
	waitChunks(t, target, id, sparseBytes>>22)
	c.killAndStart(t, target, source) // while both agents read their copies once more
	end := c.waitTransfer(t, id)
	t.Logf("moved %d GiB in %s", end.Total>>30, time.Since(begun))
	c.waitReady(t, "db", 1)
	c.waitAttached(t, target)
	checkSparse(t, target.large())

	begun = time.Now()
	c.mustJSON(t, &reply, "volume", "backup", theVolume, "--detach")
	id = reply.Transfer.ID
	c.waitDone(t, id, 10<<30)
	c.killAndStart(t, target, target)
	end = c.waitTransfer(t, id)
	t.Logf("backed up %d GiB in %s", end.Total>>30, time.Since(begun))
	c.waitReady(t, "db", 1)

	begun = time.Now()
	target.die(t)
	c.must(t, "node", "status", target.Name, "--wait=offline", "--timeout", "60s")
	c.must(t, "node", "confirm-dead", target.Name, "--force")
	c.mustJSON(t, &reply, "volume", "restore", end.Backup, "--node", source.Name, "--attach", "--detach")
	id = reply.Transfer.ID
	c.waitDone(t, id, 10<<30)
	c.killAndStart(t, source, target)
	end = c.waitTransfer(t, id)
	t.Logf("restored %d GiB in %s", end.Total>>30, time.Since(begun))
	c.waitReady(t, "db", 1)
	checkSparse(t, source.large())
	target.start(t)
	c.waitAttached(t, source)
}

// killAndStart kills the agent victim in the middle of a transfer and starts it again. While the agent is down, the
// only copy that instances would find must be on home.
func (c *cluster) killAndStart(t *testing.T, victim, home *member) {
	t.Helper()
	victim.Kill()
	if got := c.attached(); len(got) != 1 || got[0] != home.Name {
		t.Errorf("the volume is attached on %v, want %s", got, home.Name)
	}
	victim.start(t)
	victim.slowDisk(t)
}

// slowDisk delays each flush of m's running process to its disk by 250 ms, until the process exits or the test ends.
func (m *member) slowDisk(t *testing.T) {
	t.Helper()
	t.Cleanup(m.inject(t, "fsync,fdatasync,syncfs,sync_file_range", "delay_enter=250ms"))
}

// waitDone waits until a transfer reports at least the given number of done bytes, or has succeeded.
func (c *cluster) waitDone(t *testing.T, id string, bytes int64) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%d GiB of transfer %s", bytes>>30, id), 3*time.Minute, func() error {
		var v transferView
		if err := c.get("/v1/transfers/"+id, &v); err != nil {
			return err
		}
		if v.Phase == "succeeded" || v.Done >= bytes {
			return nil
		}
		return fmt.Errorf("it is %s, %d of %d bytes", v.Phase, v.Done, v.Total)
	})
}

func writeSparse(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range sparseAt {
		_, werr := fmt.Fprintf(&at64{f, at}, "%010d", at%1e10)
		err = errors.Join(err, werr)
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func checkSparse(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() != sparseBytes {
		t.Fatalf("%v, %v: want %d bytes", info, err, int64(sparseBytes))
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Blocks*512 > 1<<30 {
		t.Errorf("%s takes %d MiB", path, st.Blocks*512>>20)
	}
	for _, at := range sparseAt {
		buf := make([]byte, 10)
		if _, err := f.ReadAt(buf, at); err != nil || string(buf) != fmt.Sprintf("%010d", at%1e10) {
			t.Errorf("at byte %d is %q, %v", at, buf, err)
		}
	}
}

// at64 is a writer that writes to f from the position at on.
type at64 struct {
	f  *os.File
	at int64
}

// Write implements io.Writer.
func (w *at64) Write(p []byte) (int, error) {
	n, err := w.f.WriteAt(p, w.at)
	w.at += int64(n)
	return n, err
}
