package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// When the leader's disk is full, another server takes the lead. When the disks of two servers are full, writes are
// refused, and reads work. When there is space again, nothing is lost or corrupt (S4).
func TestFullDisk(t *testing.T) {
	require(t)
	c := newCluster(t, options{servers: 3, agents: 1})
	for _, s := range c.servers {
		s.smallDisk(t)
	}
	for _, m := range c.members() {
		m.start(t)
	}
	c.waitEligible(t, c.agents...)
	c.run(t, job{name: "web", count: 2})
	running := identities(c.instances())
	written := 0
	write := func() result {
		r := c.cli(t, "node", "label", "n1", fmt.Sprintf("mark=%d", written+1), "--json")
		if r.code == 0 {
			written++
		}
		return r
	}
	if r := write(); r.code != 0 {
		t.Fatalf("%v", r)
	}

	first := c.leader(t)
	free := first.fillDisk(t)
	waitFor(t, "a leader with space", patience, func() error {
		if now := c.leader(t); now == first {
			return fmt.Errorf("%s still leads", now.Name)
		}
		return nil
	})
	waitFor(t, "a write while one disk is full", patience, func() error {
		if r := write(); r.code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	if !first.Running() {
		t.Fatalf("%s has ended:\n%s", first.Name, first.LastLines(10))
	}

	second := c.leader(t)
	freeSecond := second.fillDisk(t)
	waitFor(t, "the refusal of writes while two disks are full", patience, func() error {
		r := write()
		if r.code != 6 {
			return fmt.Errorf("%v", r)
		}
		if f := r.failure(t); f.Code != "disk_full" || !f.Retryable || f.Hint == "" {
			return fmt.Errorf("%+v", f)
		}
		return nil
	})
	for range 20 {
		c.must(t, "node", "ls")
		if n := c.node(t, c.agents[0]); n.Labels["mark"] != fmt.Sprint(written) {
			t.Fatalf("%d writes were acknowledged, a read shows %q", written, n.Labels["mark"])
		}
		if r := write(); r.code != 6 {
			t.Fatalf("a write while two disks are full: %v", r)
		}
	}
	for _, s := range c.servers {
		if !s.Running() {
			t.Fatalf("%s has ended:\n%s", s.Name, s.LastLines(10))
		}
	}

	free()
	freeSecond()
	waitFor(t, "a write after there is space again", patience, func() error {
		if r := write(); r.code != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	for _, s := range c.servers {
		s.Kill()
	}
	for _, s := range c.servers {
		s.start(t)
	}
	c.waitVoters(t, 3)
	c.waitHeard(t)
	for _, s := range c.servers {
		waitFor(t, "the last write at "+s.Name, patience, func() error {
			var n nodeView
			if err := s.get("/v1/nodes/n1?consistency=stale", &n); err != nil {
				return err
			}
			if n.Labels["mark"] != fmt.Sprint(written) {
				return fmt.Errorf("mark is %q, want %d", n.Labels["mark"], written)
			}
			return nil
		})
	}
	if now := identities(c.instances()); !maps.Equal(running, now) {
		t.Errorf("before %v, now %v", running, now)
	}
}

// smallDisk gives a member a small file system of its own for its data.
func (m *member) smallDisk(t testing.TB) {
	t.Helper()
	if err := os.Mkdir(m.data(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", m.data(), "tmpfs", 0, "size=64m,mode=700"); err != nil {
		lacking(t, fmt.Sprintf("the right to mount a tmpfs (%v)", err))
	}
	t.Cleanup(func() {
		if err := unix.Unmount(m.data(), unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
}

// fillDisk takes all space of a member's file system until the returned function is called. Until then it also takes
// the space that a server frees, for example by removing its ballast.
func (m *member) fillDisk(t testing.TB) (free func()) {
	t.Helper()
	path := filepath.Join(m.data(), "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	block := make([]byte, 64<<10)
	go func() {
		defer close(done)
		defer f.Close()
		for {
			if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		}
	}()
	return func() {
		close(stop)
		<-done
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}
