package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

var testUIDs = driver.UIDRange{First: 300_000, Last: 310_000}

func ownUIDs(c *Config) { c.Exec.UIDs = testUIDs }

// sharedUser makes instances whose job files name no user run as the user nobody.
func sharedUser(c *Config) { c.Exec.SharedUser = true }

// nobodys returns a group that runs a shell script and whose job file names no user.
func nobodys(script string) model.GroupSpec {
	g := sh(script)
	g.Exec.User = ""
	return g
}

func uidOf(t *testing.T, pid int) int {
	t.Helper()
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	must(t, err)
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

// Two instances whose job files name no user can't read each other's environment or files.
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
	b.await(id, model.ObservedReady)
	pid := pidOf(t, filepath.Join(pids, "victim"))
	seen := filepath.Join(pids, "seen")
	thief := nobodys(fmt.Sprintf("cat /proc/%d/environ /proc/%d/cwd/secret > %s 2>&1; echo $$ > %s/thief; exec sleep 1000",
		pid, pid, seen, pids))
	other := b.run("web", thief, nil)
	b.await(other, model.ObservedReady)
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

	b.stopAgent() // an instance that restarts in place under a new agent must keep its user id
	b.start()
	must(t, os.Remove(filepath.Join(pids, "victim")))
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	if again := uidOf(t, pidOf(t, filepath.Join(pids, "victim"))); again != one {
		t.Errorf("restarted in place it runs as %d, before as %d", again, one)
	}
	named := sh("exec sleep 1000")
	named.Exec.User = fmt.Sprint(one)
	refused := b.run("bad", named, nil)
	if i := b.await(refused, model.ObservedFailed); !strings.Contains(i.Status.Reason,
		"one of those that this node gives to instances") {
		t.Errorf("a job file names a user of the range: %s", i.Status.Reason)
	}
}

// withVolume returns a group that runs a shell script in its volume, and whose job file names no user.
func withVolume(b *bench, job, script string) model.GroupSpec {
	g := nobodys("cd $OUTSPAN_VOLUME_DATA || exit 1; " + script + "; exec sleep 1000")
	g.Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: filepath.Join(b.dir, "place-"+job)}}
	return g
}

// openDirectory makes a directory that instances of any user may write to.
func openDirectory(t *testing.T, b *bench) string {
	t.Helper()
	dir := filepath.Join(b.dir, "pids")
	must(t, os.Mkdir(dir, 0o777))
	must(t, os.Chmod(dir, 0o777)) //nolint:gosec // instances of any user write there
	return dir
}

// All instances of a slot with volumes run as the slot's own user id, which owns the slot's data. No other job can read
// the data, or the environment of an instance.
func TestSlotsWithVolumesHaveUsersOfTheirOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to run an instance as another user")
	}
	b := newBench(t, ownUIDs)
	pids := openDirectory(t, b)
	spec := withVolume(b, "db", "umask 022; if test -e rows; then cat rows > "+pids+
		"/again; else echo swordfish > rows; chmod 644 rows; fi; echo $$ > "+pids+"/db")
	version := b.submit("db", spec)
	first := b.place(version, 0, b.node(), nil)
	b.await(first, model.ObservedReady)
	pid := pidOf(t, filepath.Join(pids, "db"))
	uid := uidOf(t, pid)
	data := filepath.Join(b.cfg.DataDir, "volumes", "db", "g", "0", "data")
	if owner, err := ownerOf(data); err != nil || owner != uid || !testUIDs.Has(uid) {
		t.Errorf("it runs as %d, want one of %v; its volume belongs to %d, %v", uid, testUIDs, owner, err)
	}
	thief := withVolume(b, "web",
		fmt.Sprintf("cat /proc/%d/environ /proc/%d/cwd/rows %s/rows > %s/seen 2>&1; echo $$ > %s/web",
			pid, pid, data, pids, pids))
	b.await(b.place(b.submit("web", thief), 0, b.node(), nil), model.ObservedReady)
	if other := uidOf(t, pidOf(t, filepath.Join(pids, "web"))); other == uid || !testUIDs.Has(other) {
		t.Errorf("two slots run as %d and %d", uid, other)
	}
	if text, err := os.ReadFile(filepath.Join(pids, "seen")); err != nil || strings.Contains(string(text), "swordfish") ||
		strings.Contains(string(text), "OUTSPAN_") {
		t.Errorf("another job's instance read %q, %v", text, err)
	}

	must(t, os.Remove(filepath.Join(pids, "db")))
	b.stop(first, nil)
	b.await(first, model.ObservedStopped)
	b.stopAgent() // a new agent finds the slot's user id on the disk
	b.start()
	b.await(b.place(version, 0, b.node(), nil), model.ObservedReady)
	if again := uidOf(t, pidOf(t, filepath.Join(pids, "db"))); again != uid {
		t.Errorf("the next instance of the slot runs as %d, the one before as %d", again, uid)
	}
	if text, err := os.ReadFile(filepath.Join(pids, "again")); err != nil || string(text) != "swordfish\n" {
		t.Errorf("the next instance read %q, %v", text, err)
	}
}

// An instance runs as the owner of its slot's existing data. If the node had no range when the data was written, the
// owner is the user nobody. If the owner is any other id outside the node's range, the instance fails and reports why.
func TestOwnersOfDataThatIsThere(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to run an instance as another user")
	}
	b := newBench(t, sharedUser)
	pids := openDirectory(t, b)
	version := b.submit("old",
		withVolume(b, "old", "touch rows || exit 1; stat -c %u rows > "+pids+"/owner; echo $$ > "+pids+"/old"))
	runsAsNobody := func(id model.InstanceID) {
		t.Helper()
		b.await(id, model.ObservedReady)
		if uid := uidOf(t, pidOf(t, filepath.Join(pids, "old"))); uid != nogroup {
			t.Errorf("it runs as %d, want nobody, whose data it is", uid)
		}
		must(t, os.Remove(filepath.Join(pids, "old")))
		b.stop(id, nil)
		b.await(id, model.ObservedStopped)
	}
	runsAsNobody(b.place(version, 0, b.node(), nil))
	b.stopAgent()
	b.cfg.Exec.SharedUser = false
	b.start()
	runsAsNobody(b.place(version, 0, b.node(), nil))

	must(t, os.Lchown(filepath.Join(b.cfg.DataDir, "volumes", "old", "g", "0", "data"), 200_000, -1))
	if i := b.await(b.place(version, 0, b.node(), nil), model.ObservedFailed); !strings.Contains(i.Status.Reason,
		"user id 200000, which is not in instance_uids") {
		t.Errorf("the data of another range: %s", i.Status.Reason)
	}
}

// An instance gets no user id that owns a volume, or a copy that is not in use yet. Only the volume's slot can claim
// the owner of a volume. Any slot can claim the owner of a copy that is not in use yet.
func TestOwnersOfVolumesAreTaken(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to give files away")
	}
	dir := t.TempDir()
	for name, uid := range map[string]int{"db/g/0/data": 300_000, "db/g/1/data@3": 300_001,
		".transfer/t1/tree/data": 300_002} {
		must(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
		must(t, os.Lchown(filepath.Join(dir, name), uid, -1))
	}
	u := newUIDs(driver.UIDRange{First: 300_000, Last: 300_003}, dir, hclog.NewNullLogger())
	if uid, ok := u.take(instanceHolder("one")); uid != 300_003 || !ok {
		t.Errorf("an instance gets %d, want the only free one, 300003", uid)
	}
	if uid, ok := u.take(instanceHolder("two")); ok {
		t.Errorf("an instance gets %d, which is in use", uid)
	}
	for slot, want := range map[uidHolder]bool{slotHolder("db/g", 0): true, slotHolder("db/g", 2): false} {
		if got := u.claim(slot, 300_000); got != want {
			t.Errorf("%s may use the owner of the volume of slot 0: %v", slot, got)
		}
	}
	if !u.claim(slotHolder("db/g", 2), 300_002) {
		t.Error("the slot for which a copy was made can't use it")
	}
}

// After a change of the range, an instance whose user id is outside the new range gets another user id at its next
// start.
func TestChangedRangeOfUsers(t *testing.T) {
	u := newUIDs(testUIDs, t.TempDir(), hclog.NewNullLogger())
	u.keep(transport.Assignment{ID: "old"}, 200_000)
	u.keep(transport.Assignment{ID: "kept"}, 300_001)
	kept, _ := u.take(instanceHolder("kept"))
	if other, ok := u.take(instanceHolder("old")); kept != 300_001 || !ok || !testUIDs.Has(other) || other == kept {
		t.Errorf("they get %d and %d of %v", kept, other, testUIDs)
	}
}
