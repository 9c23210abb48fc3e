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

// An instance with volumes runs as the default user: the data outlives it.
func TestVolumesBelongToTheDefaultUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to run an instance as another user")
	}
	b := newBench(t, ownUIDs)
	pidFile := filepath.Join(b.dir, "place-pid")
	must(t, os.WriteFile(pidFile, nil, 0o666))
	must(t, os.Chmod(pidFile, 0o666)) //nolint:gosec // an instance of another user writes it
	g := nobodys("echo $$ > " + pidFile + "; exec sleep 1000")
	g.Volumes = []fsm.VolumeSpec{{Name: "data", Kind: fsm.VolumeLocal, Path: filepath.Join(b.dir, "place")}}
	b.await(b.place(b.submit("db", g), 0, b.node(), nil), fsm.ObservedReady)
	if uid := uidOf(t, pidOf(t, pidFile)); uid != nogroup {
		t.Errorf("it runs as %d, want nobody", uid)
	}
}

// A range that was changed gives an instance another user at its next start.
func TestChangedRangeOfUsers(t *testing.T) {
	u := newUIDs(testUIDs)
	u.keep("old", 200_000)
	u.keep("kept", 300_001)
	kept, _ := u.take("kept")
	if other, ok := u.take("old"); kept != 300_001 || !ok || !testUIDs.Has(other) || other == kept {
		t.Errorf("they get %d and %d of %v", kept, other, testUIDs)
	}
}
