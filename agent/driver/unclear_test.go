package driver_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
)

// unclear makes an instance for which the driver can't find out whether it runs. It starts the instance, stops its shim
// with SIGSTOP, removes the file with the shim's identity, and reopens the driver.
func unclear(t *testing.T, b *bench, script string) (task *driver.Task, shim int) {
	t.Helper()
	task = b.start(b.sh("echo said; " + script))
	b.says(task, "said")
	shim = parent(t, task.Process().PID)
	must(t, b.d.Close())
	must(t, syscall.Kill(shim, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(shim, syscall.SIGKILL) })
	must(t, os.Remove(filepath.Join(b.cfg.Dir, "state", string(task.ID()), "shim")))
	b.open()
	tasks, ids, err := b.d.Adopt(t.Context())
	if err != nil || len(tasks) != 0 || len(ids) != 1 || ids[0] != task.ID() {
		t.Fatalf("adopted %v, unclear %v, %v", tasks, ids, err)
	}
	return task, shim
}

// Readopt of an unclear instance returns within seconds, with the same error each time, until the shim answers.
func TestReadoptIsShort(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task, shim := unclear(t, b, "exec sleep 1000")
	first := ""
	for range 2 {
		began := time.Now()
		_, err := b.d.Readopt(t.Context(), task.ID())
		if err == nil || first != "" && err.Error() != first || time.Since(began) > 3*time.Second {
			t.Errorf("after %v: %v; before: %v", time.Since(began), err, first)
			return
		}
		first = err.Error()
	}
	if spec, known := b.d.Launched(task.ID()); !known || spec.ID != task.ID() {
		t.Errorf("launched %+v, %v", spec, known)
	}
	must(t, syscall.Kill(shim, syscall.SIGCONT))
	eventually(t, "an adoption", func() bool {
		got, err := b.d.Readopt(t.Context(), task.ID())
		return err == nil && got != nil && got.Alive() && got.Process() == task.Process()
	})
}

// The cgroup of an unclear instance is kept, even while it is empty.
func TestUnclearKeepsItsCgroup(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if b.d.Capabilities().CgroupVersion == 0 {
		t.Skipf("skipped: needs root and cgroups: %v", b.d.Capabilities().Notes)
	}
	cgroups := func(id driver.ID) int {
		found, _ := filepath.Glob("/sys/fs/cgroup/*/" + b.cfg.CgroupParent + "/" + string(id) + "-*")
		found2, _ := filepath.Glob("/sys/fs/cgroup/" + b.cfg.CgroupParent + "/" + string(id) + "-*")
		return len(found) + len(found2)
	}
	task := b.start(b.sh("exec sleep 1000"))
	shim := parent(t, task.Process().PID)
	want := cgroups(task.ID())
	must(t, b.d.Close())
	must(t, syscall.Kill(shim, syscall.SIGSTOP))
	must(t, syscall.Kill(task.Process().PID, syscall.SIGKILL))
	eventually(t, "the end of the program", func() bool { return !running(task.Process().PID) })
	dir := filepath.Join(b.cfg.Dir, "state", string(task.ID()))
	must(t, os.Remove(filepath.Join(dir, "shim")))
	for range 2 { // in the second round the launch record can't be read, but the file main has what is needed
		b.open()
		_, ids, err := b.d.Adopt(t.Context())
		if err != nil || len(ids) != 1 || cgroups(task.ID()) != want || want == 0 {
			t.Errorf("unclear %v, %v; %d cgroups, there were %d", ids, err, cgroups(task.ID()), want)
		}
		must(t, b.d.Close())
		if n := cgroups(task.ID()); n != want {
			t.Errorf("%d cgroups after the end of the driver, there were %d", n, want)
		}
		launch := filepath.Join(dir, "launch")
		must(t, os.RemoveAll(launch))
		must(t, os.Mkdir(launch, 0o700))
	}
	b.open()
	_, _, err := b.d.Adopt(t.Context())
	must(t, err)
	must(t, b.d.End(t.Context(), task.ID()))
	must(t, os.Remove(filepath.Join(dir, "launch")))
	if got, err := b.d.Readopt(t.Context(), task.ID()); got != nil || err != nil {
		t.Errorf("readopted %v, %v", got, err)
	}
	must(t, os.RemoveAll(b.d.WorkDir(task.ID())))
}

// End kills the shim and all processes of an unclear instance, and keeps the logs. It refuses an adopted instance.
func TestEndOfUnclear(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, b *bench) {
		task, shim := unclear(t, b, strings.ReplaceAll(detach, "env -i", "")+"exec sleep 1000")
		pids := pidsIn(t, filepath.Join(b.d.WorkDir(task.ID()), "pids"), 4)
		must(t, b.d.End(t.Context(), task.ID()))
		goneAll(t, append(pids, task.Process().PID, shim))
		got, err := b.d.Readopt(t.Context(), task.ID())
		if err != nil || got == nil {
			t.Fatalf("readopted %v, %v", got, err)
		}
		if e := wait(t, got); e.Reason != driver.ReasonShimLost {
			t.Errorf("exit = %+v", e)
		}
		if out := b.logs(got, driver.Stdout); !strings.Contains(out, "said") {
			t.Errorf("logs = %q", out)
		}
		if err := b.d.End(t.Context(), task.ID()); err == nil {
			t.Error("what is known was ended as if it were not")
		}
	})
}
