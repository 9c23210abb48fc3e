package driver_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
)

const nobody = 65534 // a user with an account

// A program starts in its own directory, although its user may not enter the directories above.
func TestOwnDirBehindClosedParent(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to run an instance as another user")
	}
	closed := openDir(t)
	must(t, os.Chmod(closed, 0o700))
	b := newBench(t, func(c *driver.Config) { c.Dir = filepath.Join(closed, "d") })
	task := b.start(b.sh("id -u; pwd; echo mine > file && cat file; exec sleep 1000", asNobody))
	b.says(task, fmt.Sprintf("%d\n%s\nmine\n", nobody, task.Dir()))
	if got := execOutput(t, task, "pwd; cat file"); got != task.Dir()+"\nmine\n" {
		t.Errorf("a command beside it says %q", got)
	}
}

func asNobody(s *driver.Spec) { s.User = fmt.Sprint(nobody) }

func execOutput(t *testing.T, task *driver.Task, script string) string {
	t.Helper()
	var out strings.Builder
	code, err := task.Exec(t.Context(), driver.Command{Argv: []string{"sh", "-c", script}, Stdout: &out, Stderr: &out})
	if err != nil || code != 0 {
		t.Errorf("exec %q: code %d, %v, %s", script, code, err, out.String())
	}
	return out.String()
}

// binding is a bench with a directory to bind, data, and a target for the bind, place. Other users may not enter the
// directory above data. place is on a shared mount, as most directories of a node are.
type binding struct {
	*bench
	data, place string
}

func newBinding(t *testing.T, change ...func(*driver.Config)) *binding {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root to mount")
	}
	closed, shared := openDir(t), openDir(t)
	must(t, os.Chmod(closed, 0o700))
	must(t, unix.Mount("tmpfs", shared, "tmpfs", 0, "mode=0755"))
	t.Cleanup(func() {
		if err := unix.Unmount(shared, 0); err != nil { // fails if anything is still mounted below it
			t.Errorf("unmount %s: %v", shared, err)
			_ = unix.Unmount(shared, unix.MNT_DETACH)
		}
	})
	must(t, unix.Mount("", shared, "", unix.MS_SHARED, ""))
	change = append(change, func(c *driver.Config) { c.Dir = filepath.Join(closed, "d") })
	b := &binding{newBench(t, change...), filepath.Join(closed, "volume"), filepath.Join(shared, "srv", "data")}
	if !b.d.Capabilities().Binds {
		t.Skipf("skipped: root may not mount here: %q", b.d.Capabilities().Notes)
	}
	must(t, os.Mkdir(b.data, 0o700))
	must(t, os.Chown(b.data, nobody, nobody))
	return b
}

// bound returns a spec that runs script as another user, with the data bound at the target. $P in the script is the
// target.
func (b *binding) bound(script string) driver.Spec {
	return b.sh(script, asNobody, func(s *driver.Spec) {
		s.Env = map[string]string{"P": b.place}
		s.Binds = []driver.Bind{{Source: b.data, Target: b.place}}
	})
}

// mountedIn returns the processes that have something mounted at the target; "self" stands for this test.
func (b *binding) mountedIn() []string {
	files, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	var found []string
	for _, file := range append(files, "/proc/self/mountinfo") {
		if text, _ := os.ReadFile(file); strings.Contains(string(text), " "+b.place+" ") {
			found = append(found, strings.Split(file, "/")[2])
		}
	}
	return found
}

func TestBind(t *testing.T) {
	b := newBinding(t)
	task := b.start(b.bound(`echo one > $P/log; grep " $P " /proc/self/mountinfo; echo ready; exec sleep 1000`))
	b.says(task, "ready\n")
	if got := b.logs(task, driver.Stdout); !strings.Contains(got, "nosuid,nodev") {
		t.Errorf("its options: %s", got)
	}
	if text, err := os.ReadFile(filepath.Join(b.data, "log")); err != nil || string(text) != "one\n" {
		t.Errorf("the directory has %q, %v", text, err)
	}
	if st, err := os.Stat(b.place); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("the place was made as %v, %v", st, err)
	}

	// Only the instance sees the data. Neither the node nor an instance that starts later does.
	if entries, err := os.ReadDir(b.place); err != nil || len(entries) != 0 {
		t.Errorf("the node sees %v, %v", entries, err)
	}
	if got := b.mountedIn(); len(got) != 1 || got[0] != fmt.Sprint(task.Process().PID) {
		t.Errorf("mounted in processes %v, want %d alone", got, task.Process().PID)
	}
	other, _ := b.run("ls -A "+b.place+"; echo looked", asNobody)
	if got := b.logs(other, driver.Stdout); got != "looked\n" {
		t.Errorf("another instance sees %q", got)
	}
	mounts, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", task.Process().PID))
	must(t, err)
	if got := execOutput(t, task, "readlink /proc/self/ns/mnt"); got != mounts+"\n" {
		t.Errorf("a command beside it has the mounts %q, want those of the program, %s", got, mounts)
	}
	const beside = `cat $P/log; pwd; id -u; echo check >> $P/checks`
	want := fmt.Sprintf("one\n%s\n%d\n", task.Dir(), nobody)
	if got := execOutput(t, task, beside); got != want {
		t.Errorf("a command beside it says %q, want %q", got, want)
	}

	// After an adoption, commands beside the program still see the data.
	adopted := b.restart()
	task, _ = b.d.Task(task.ID())
	if len(adopted) != 2 || !task.Alive() {
		t.Fatalf("adopted %d, alive = %v", len(adopted), task.Alive())
	}
	if got := execOutput(t, task, beside); got != want {
		t.Errorf("after adoption: %q, want %q", got, want)
	}
	stop(t, task, 0, 0)

	// The next instance gets the same data.
	next := b.start(b.bound(`cat $P/log $P/checks`))
	e := wait(t, next)
	if got := b.logs(next, driver.Stdout); e.Code != 0 || got != "one\ncheck\ncheck\n" {
		t.Errorf("the next one reads %q, %+v", got, e)
	}
	if got := b.mountedIn(); len(got) != 0 {
		t.Errorf("after the end it is mounted in %v", got)
	}
}

// Two instances can have different data at the same path at the same time.
func TestBindTwoAtOnePlace(t *testing.T) {
	b := newBinding(t)
	second := b.data + "2"
	must(t, os.Mkdir(second, 0o700))
	must(t, os.Chown(second, nobody, nobody))
	one := b.start(b.bound("echo one > $P/who; echo ready; exec sleep 1000"))
	spec := b.bound("echo two > $P/who; echo ready; exec sleep 1000")
	spec.Binds[0].Source = second
	two := b.start(spec)
	for task, want := range map[*driver.Task]string{one: "one\n", two: "two\n"} {
		b.says(task, "ready\n")
		if got := execOutput(t, task, "cat $P/who"); got != want {
			t.Errorf("reads %q, want %q", got, want)
		}
	}
}

// Any user can make mounts in a user namespace. A command beside a program that does so gets new mounts of the volumes
// instead of the program's mounts, because it would enter the program's mounts with the agent's rights.
func TestBindOfProgramInItsOwnMounts(t *testing.T) {
	b := newBinding(t)
	task := b.start(b.bound(`echo real > $P/log
		exec unshare -Urm sh -c 'mount -t tmpfs none $P && echo fake > $P/log && echo ready && exec sleep 1000'`))
	eventually(t, "the program to say something or end", func() bool {
		return strings.Contains(b.logs(task, driver.Stdout), "ready") || !task.Alive()
	})
	if !task.Alive() {
		t.Skipf("skipped: users can't make namespaces here: %s", b.logs(task, driver.Stderr))
	}
	if got := execOutput(t, task, "cat $P/log"); got != "real\n" {
		t.Errorf("a command beside it reads %q", got)
	}
}

func TestBindRefused(t *testing.T) {
	b := newBinding(t)
	root := filepath.Dir(filepath.Dir(b.place))
	must(t, os.Mkdir(filepath.Join(root, "real"), 0o755))
	must(t, os.Symlink("real", filepath.Join(root, "link")))
	must(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o644))
	at := func(name string) string { return filepath.Join(root, name) }
	own := "outspan-test-" + strconv.Itoa(os.Getpid())
	places := []string{"/etc/cron.d/" + own, "/" + own, "/home/" + own, "/var/lib/" + own, "/srv-" + own}
	t.Cleanup(func() { removeEmpty(append(places, "/"+own+"/x")) })
	tests := []struct {
		name, target string
		code         model.Code
		says         string
	}{
		{"relative", "data", driver.CodeInvalidSpec, "absolute"},
		{"empty", "", driver.CodeInvalidSpec, "absolute"},
		{"not clean", at("x") + "/../y", driver.CodeInvalidSpec, "clean"},
		{"root", "/", driver.CodeInvalidSpec, "whole node"},
		{"proc", "/proc", driver.CodeInvalidSpec, "kernel"},
		{"below proc", "/proc/1", driver.CodeInvalidSpec, "kernel"},
		{"below sys", "/sys/fs/data", driver.CodeInvalidSpec, "kernel"},
		{"below dev", "/dev/shm/data", driver.CodeInvalidSpec, "kernel"},
		{"data below", filepath.Dir(b.data), driver.CodeInvalidSpec, b.data},
		{"data above", filepath.Join(b.data, "x"), driver.CodeInvalidSpec, b.data},
		{"the driver's", filepath.Join(b.cfg.Dir, "state", "x"), driver.CodeInvalidSpec, b.cfg.Dir},
		{"file", at("file"), driver.CodeStartFailed, "not a directory"},
		{"below a file", at("file/x"), driver.CodeStartFailed, "not a directory"},
		{"a new directory of the machine", "/etc/cron.d/" + own, driver.CodeStartFailed, "volume_paths"},
		{"a new directory below the root", "/" + own + "/x", driver.CodeStartFailed, "volume_paths"},
		{"a new home", "/home/" + own, driver.CodeStartFailed, "volume_paths"},
		{"a new directory of a daemon", "/var/lib/" + own, driver.CodeStartFailed, "volume_paths"},
		{"nearly allowed", "/srv-" + own, driver.CodeStartFailed, "volume_paths"},
		{"link", at("link"), driver.CodeStartFailed, "link to real"},
		{"below a link", at("link/x"), driver.CodeStartFailed, "link to real"},
	}
	for _, tt := range tests {
		spec := b.bound("echo ran")
		spec.Binds[0].Target = tt.target
		task, err := b.d.Start(t.Context(), spec)
		if task != nil || !errors.Is(err, &model.Error{Code: tt.code}) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: started = %v, error %v; want %s with %q", tt.name, task != nil, err, tt.code, tt.says)
		}
		b.nothingLeftOf(spec.ID)
	}
	for _, place := range places {
		if _, err := os.Lstat(place); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was made: %v", place, err)
		}
	}
	if entries, err := os.ReadDir(at("real")); err != nil || len(entries) != 0 {
		t.Errorf("something was made behind the link: %v, %v", entries, err)
	}
	both := b.bound("echo ran")
	both.Binds = append(both.Binds, driver.Bind{Source: b.data + "2", Target: filepath.Join(b.place, "deeper")})
	_, err := b.d.Start(t.Context(), both)
	wantCode(t, err, driver.CodeInvalidSpec)
	missing := b.bound("echo ran")
	missing.Binds[0].Source = b.data + "-missing"
	_, err = b.d.Start(t.Context(), missing)
	wantCode(t, err, driver.CodeStartFailed)
	if got := b.mountedIn(); len(got) != 0 {
		t.Errorf("mounted in %v", got)
	}
}

// A driver that may not mount says so in its notes, and refuses binds.
func TestBindNeedsRoot(t *testing.T) {
	b := newBench(t)
	c := b.d.Capabilities()
	note := "volumes are not mounted at their path: needs root; use OUTSPAN_VOLUME_<NAME>"
	if got := strings.Contains(strings.Join(c.Notes, "\n"), note); got != (os.Geteuid() != 0) {
		t.Errorf("as uid %d the notes are %q", os.Geteuid(), c.Notes)
	}
	if c.Binds {
		return
	}
	_, err := b.d.Start(t.Context(), b.sh("true", func(s *driver.Spec) {
		s.Binds = []driver.Bind{{Source: t.TempDir(), Target: "/data"}}
	}))
	wantCode(t, err, driver.CodeInvalidSpec)
}

func removeEmpty(dirs []string) {
	for _, dir := range slices.Backward(dirs) {
		_ = os.Remove(dir)
	}
}

// Directories for volumes are made only below volume_paths. By default, volume_paths lists places where the system
// keeps nothing. A directory that exists can be used wherever it is.
func TestBindPaths(t *testing.T) {
	own := "outspan-test-" + strconv.Itoa(os.Getpid())
	made := []string{"/srv/" + own, "/var/lib/" + own, "/var/lib/" + own + "/deep",
		"/var/lib/" + own + "/deep/er", "/home/" + own}
	t.Cleanup(func() { removeEmpty(made) })
	removeEmpty(made)
	tests := []struct {
		name, target string
		paths        []string // nil means the default
		existing     bool
		ok           bool
	}{
		{"a default", "/srv/" + own, nil, false, true},
		{"none", "/srv/" + own, []string{}, false, false},
		{"only others", "/srv/" + own, []string{"/data"}, false, false},
		{"one of its own", "/var/lib/" + own + "/deep/er", []string{"/var/lib/" + own}, false, true},
		{"what exists", "/home/" + own, []string{}, true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBinding(t, func(c *driver.Config) { c.VolumePaths = tt.paths })
			removeEmpty(made)
			if tt.existing {
				must(t, os.Mkdir(tt.target, 0o755))
			}
			spec := b.bound("echo ran")
			spec.Binds[0].Target = tt.target
			task, err := b.d.Start(t.Context(), spec)
			if (err == nil) != tt.ok {
				t.Fatalf("started with %v, want it started: %v", err, tt.ok)
			}
			if tt.ok {
				<-task.Done()
				return
			}
			wantCode(t, err, driver.CodeStartFailed)
			if _, err := os.Lstat(tt.target); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s was made: %v", tt.target, err)
			}
		})
	}
}
