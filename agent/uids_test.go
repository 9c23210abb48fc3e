package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/fsm"
)

var testUIDs = driver.UIDRange{First: 300_000, Last: 310_000}

func ownUIDs(c *Config) { c.Exec.UIDs = testUIDs }

// nobodys is a shell script whose job file names no user.
func nobodys(script string) fsm.GroupSpec {
	g := sh(script)
	g.Exec.User = ""
	return g
}

// uidOf is the user id that a process runs as.
func uidOf(t *testing.T, pid int) int {
	t.Helper()
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	must(t, err)
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

// Of two instances that name no user neither can read the environment or a file of the other. C8.
func TestInstancesHaveUsersOfTheirOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to run an instance as another user")
	}
	b := newBench(t, ownUIDs)
	pids := filepath.Join(b.dir, "pids")
	must(t, os.Mkdir(pids, 0o777))
	must(t, os.Chmod(pids, 0o777)) //nolint:gosec // instances of any user write there
	victim := nobodys("umask 077; echo $DB_PASSWORD > secret; echo $$ > " + pids + "/victim; exec sleep 1000")
	victim.Env = map[string]string{"DB_PASSWORD": "swordfish"}
	id := b.run("db", victim, nil)
	b.await(id, fsm.ObservedReady)
	pid := pidOf(t, filepath.Join(pids, "victim"))
	seen := filepath.Join(pids, "seen")
	thief := nobodys(fmt.Sprintf("cat /proc/%d/environ /proc/%d/cwd/secret > %s 2>&1; echo $$ > %s/thief; exec sleep 1000", pid, pid, seen, pids))
	other := b.run("web", thief, nil)
	b.await(other, fsm.ObservedReady)
	second := pidOf(t, filepath.Join(pids, "thief"))
	text, err := os.ReadFile(seen)
	must(t, err)
	if strings.Contains(string(text), "swordfish") {
		t.Errorf("another job's instance read %q", text)
	}
	one, two := uidOf(t, pid), uidOf(t, second)
	if one == two || !testUIDs.Has(one) || !testUIDs.Has(two) {
		t.Errorf("they run as %d and %d, want two of %v", one, two, testUIDs)
	}

	b.stopAgent() // what an earlier agent gave is not given again, and a restart in place keeps it
	b.start()
	must(t, os.Remove(filepath.Join(pids, "victim")))
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	if again := uidOf(t, pidOf(t, filepath.Join(pids, "victim"))); again != one {
		t.Errorf("restarted in place it runs as %d, before as %d", again, one)
	}
	named := sh("exec sleep 1000")
	named.Exec.User = fmt.Sprint(one)
	refused := b.run("bad", named, nil)
	if i := b.await(refused, fsm.ObservedFailed); !strings.Contains(i.Status.Reason, "one of those that this node gives to instances") {
		t.Errorf("a job file names a user of the range: %s", i.Status.Reason)
	}
}

// The data of a volume keeps its user from one instance of a slot to the next. If another instance has that user meanwhile, as after a move from a node that gave
// it too, the data gets the user of its instance.
func TestVolumeKeepsItsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to run an instance as another user")
	}
	b := newBench(t, ownUIDs)
	pidFile := filepath.Join(b.dir, "place-pid")
	must(t, os.WriteFile(pidFile, nil, 0o666))
	must(t, os.Chmod(pidFile, 0o666)) //nolint:gosec // instances of any user write it
	g := nobodys("umask 077; echo x >> \"$OUTSPAN_VOLUME_DATA/log\" && cat \"$OUTSPAN_VOLUME_DATA/log\" && echo $$ > " + pidFile + "; exec sleep 1000")
	g.Volumes = []fsm.VolumeSpec{{Name: "data", Kind: fsm.VolumeLocal, Path: filepath.Join(b.dir, "place")}}
	group := b.submit("db", g)
	log := b.cfg.DataDir + "/volumes/db/g/0/data/log"
	turn := func() (uid int) {
		must(t, os.WriteFile(pidFile, nil, 0o666))
		id := b.place(group, 0, b.node(), nil)
		b.await(id, fsm.ObservedReady)
		uid = uidOf(t, pidOf(t, pidFile))
		info, err := os.Stat(log)
		must(t, err)
		if owner := int(info.Sys().(*syscall.Stat_t).Uid); owner != uid {
			t.Errorf("the instance runs as %d and its data is of %d", uid, owner)
		}
		b.stop(id, nil)
		b.await(id, fsm.ObservedStopped)
		return uid
	}
	first := turn()
	if second := turn(); second != first {
		t.Errorf("the next instance of the slot runs as %d, the first as %d", second, first)
	}
	give := func(uid int) {
		must(t, os.Chown(filepath.Dir(log), uid, nogroup))
		must(t, os.Chown(log, uid, nogroup))
	}
	taken := 305_000
	b.agent.shop.uids.keep("another", taken)
	give(taken)
	if third := turn(); third == taken || !testUIDs.Has(third) {
		t.Errorf("an instance runs as %d beside one that runs as %d", third, taken)
	}
	for _, old := range []int{nogroup, 500_000} { // from before there was a range, and of a node with another one
		give(old)
		if uid := turn(); !testUIDs.Has(uid) {
			t.Errorf("an instance with data of %d runs as %d", old, uid)
		}
	}
	b.stopAgent()
	b.cfg.Exec.UIDs = driver.UIDRange{}
	b.start()
	if uid := turn(); uid != nogroup {
		t.Errorf("without a range the instance runs as %d", uid)
	}
}
