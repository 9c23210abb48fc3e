package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

// holder returns a group whose instances must not run twice. The program writes its pid to pidFile.
func holder(pidFile string) model.GroupSpec {
	g := sh("echo $$ > " + pidFile + "; exec sleep 1000")
	g.Role, g.RoleCheck = model.RoleQuorum, &model.RoleCheckSpec{Exec: []string{"/bin/true"}}
	g.Eviction.Mode = "always"
	return g
}

// fill fills the file system of a directory, and returns a function that makes room again.
func fill(t *testing.T, dir string) func() {
	t.Helper()
	name := filepath.Join(dir, "full")
	f, err := os.Create(name)
	must(t, err)
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for {
			if _, err := f.Write(make([]byte, size)); err != nil {
				break
			}
		}
	}
	return func() { must(t, os.Remove(name)) }
}

// On a full disk, the end of an instance that must not run twice is reported only after the journal has recorded that
// end. An agent that restarts before does not know of the end, so it asks the servers before it starts the instance.
func TestStoppedOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to mount a small file system")
	}
	for name, restart := range map[string]bool{"room again": false, "agent restarted": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, allowRoot, func(c *Config) {
				must(t, os.MkdirAll(c.DataDir, 0o711))
				if err := unix.Mount("tmpfs", c.DataDir, "tmpfs", 0, "size=16m"); err != nil {
					t.Skipf("skipped: no right to mount a small file system: %v", err)
				}
			})
			data := b.cfg.DataDir
			t.Cleanup(func() { _ = unix.Unmount(data, unix.MNT_DETACH) })
			pidFile := filepath.Join(b.dir, "pid")
			id := b.run("one", holder(pidFile), nil)
			b.await(id, model.ObservedReady)
			pid := pidOf(t, pidFile)
			room := fill(t, data)
			for b.agent.home.records.Put("filler", make([]byte, 64)) == nil { // also fills the last block of the journal's file
				t.Log("the journal had room for one more record")
			}
			b.stop(id, nil)
			eventually(t, "the reason to be told", func() bool {
				s := b.instance(id).Status
				if s.Observed == model.ObservedStopped {
					t.Fatal("it was told as stopped, and the journal does not know")
				}
				return strings.Contains(s.Reason, "journal") && strings.Contains(s.Reason, "no space left")
			})
			if alive(pid) {
				t.Error("the program still runs")
			}
			if !strings.Contains(strings.Join(b.agent.warnings(), ""), "no space left") {
				t.Errorf("the node's warnings are %q", b.agent.warnings())
			}
			if restart {
				b.setDown(true)
				b.stopAgent()
				room()
				b.start()
				eventually(t, "the instance to be supervised", func() bool { return b.agent.supervisors.member(id) != nil })
				asked := b.count("register")
				eventually(t, "some tries to reach a server", func() bool { return b.count("register") > asked+2 })
				if now := pidOf(t, pidFile); now != pid || alive(now) {
					t.Error("it was started again before any server was asked")
				}
				b.setDown(false)
			} else {
				room()
			}
			b.await(id, model.ObservedStopped)
		})
	}
}
