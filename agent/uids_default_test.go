package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/outspan/outspan/model"
)

// An agent that runs as root gives each instance that names no user its own user id, even if the configuration has no
// range. So no job can read the environment or the working directory of another job's instance.
func TestInstancesHaveUsersOfTheirOwnByDefault(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to run an instance as another user")
	}
	b := newBench(t)
	pids := openDirectory(t, b)
	victim := nobodys("umask 077; echo $DB_PASSWORD > $HOME/secret; echo $$ > " + pids + "/victim; exec sleep 1000")
	victim.Env = map[string]string{"DB_PASSWORD": "swordfish"}
	b.await(b.run("db", victim, nil), model.ObservedReady)
	pid := pidOf(t, filepath.Join(pids, "victim"))
	work, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	must(t, err)
	if info, err := os.Stat(work); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the working directory: %v, %v", info, err)
	}
	if text, err := os.ReadFile(filepath.Join(work, "secret")); err != nil || string(text) != "swordfish\n" {
		t.Errorf("what it wrote to its home: %q, %v", text, err)
	}
	thief := nobodys(fmt.Sprintf("cat /proc/%d/environ %s/secret > %s/seen 2>&1; echo $$ > %[3]s/thief; exec sleep 1000",
		pid, work, pids))
	b.await(b.run("web", thief, nil), model.ObservedReady)
	second := pidOf(t, filepath.Join(pids, "thief"))
	text, err := os.ReadFile(filepath.Join(pids, "seen"))
	must(t, err)
	if strings.Contains(string(text), "swordfish") {
		t.Errorf("another job's instance read %q", text)
	}
	if one, two := uidOf(t, pid), uidOf(t, second); one == two || one == nogroup || two == nogroup {
		t.Errorf("they run as %d and %d, want two users", one, two)
	}
}

// An instance that ran as the user nobody before its agent gave out user ids still does so after a restart in place. So
// the program can still read what it wrote.
func TestInstancesKeepTheUserThatTheyBeganWith(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to run an instance as another user")
	}
	b := newBench(t, sharedUser)
	pids := openDirectory(t, b)
	script :=
		"umask 077; test -e rows && cat rows > %[1]s/again; echo swordfish > rows; echo $$ > %[1]s/%[2]s; exec sleep 1000"
	b.await(b.run("old", nobodys(fmt.Sprintf(script, pids, "old")), nil), model.ObservedReady)
	pid := pidOf(t, filepath.Join(pids, "old"))
	b.stopAgent()
	b.cfg.Exec.SharedUser = false
	b.start()
	b.await(b.run("new", nobodys(fmt.Sprintf(script, pids, "new")), nil), model.ObservedReady)
	if uid := uidOf(t, pidOf(t, filepath.Join(pids, "new"))); !DefaultUIDs().Has(uid) {
		t.Errorf("a new instance runs as %d, want one of %v", uid, DefaultUIDs())
	}
	if !alive(pid) || uidOf(t, pid) != nogroup {
		t.Errorf("what ran was disturbed: process %d", pid)
	}
	must(t, os.Remove(filepath.Join(pids, "old")))
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	if uid := uidOf(t, pidOf(t, filepath.Join(pids, "old"))); uid != nogroup {
		t.Errorf("restarted in place it runs as %d, before as nobody", uid)
	}
	if text, err := os.ReadFile(filepath.Join(pids, "again")); err != nil || string(text) != "swordfish\n" {
		t.Errorf("restarted in place it read %q, %v", text, err)
	}
}
