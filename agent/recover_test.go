package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
)

// A restarted agent can't tell whether a program runs: the shim holds its lock and does not answer, and the disk has
// lost the shim's identity. The instance is reported as not ready, but not as ended, and the program is not started
// again. Once the shim answers, the same program is adopted.
func TestShimThatDoesNotAnswerIsAwaited(t *testing.T) {
	b := newBench(t, allowRoot)
	pidFile := filepath.Join(b.dir, "pid")
	id := b.run("web", sh("echo $$ > "+pidFile+"; exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	pid := pidOf(t, pidFile)
	b.stopAgent()
	shim := parentOf(t, pid)
	must(t, syscall.Kill(shim, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(shim, syscall.SIGCONT) })
	must(t, os.Remove(filepath.Join(b.dir, "data", "driver", "state", string(id), "shim")))
	reports := len(b.history(id))

	b.start()
	eventually(t, "word that it was not adopted", func() bool {
		st := b.m.State()
		i, _ := st.Instances.Get(id)
		return strings.HasPrefix(i.Status.Reason, "not_adopted: ") && i.Status.Observed == model.ObservedUnready
	})
	must(t, syscall.Kill(shim, syscall.SIGCONT))
	i := b.await(id, model.ObservedReady)
	if got := b.history(id)[reports:]; i.Status.Restarts != 0 || pidOf(t, pidFile) != pid || !alive(pid) ||
		slices.ContainsFunc(got, func(s string) bool {
			return s != "ready" && !strings.HasPrefix(s, "unready not_adopted")
		}) {
		t.Errorf("afterwards: %+v, pid %d was %d, reported %q", i.Status, pidOf(t, pidFile), pid, got)
	}
	b.stop(id, nil)
	b.await(id, model.ObservedStopped)
	if alive(pid) {
		t.Error("it runs on after it was stopped")
	}
}

// An instance whose shim does not answer is reported with the shim's pid. A stop of the instance kills that shim and
// all its descendants.
func TestHungShimIsEnded(t *testing.T) {
	for name, lose := range map[string][]string{"identity gone": {"shim"},
		"all gone but the launch": {"shim", "main", "control"}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, allowRoot)
			pidFile := filepath.Join(b.dir, "pid")
			id := b.run("web",
				sh("setsid sleep 1000 & echo $! > "+pidFile+".below; echo $$ > "+pidFile+"; exec sleep 1000"), nil)
			b.await(id, model.ObservedReady)
			pid, below := pidOf(t, pidFile), pidOf(t, pidFile+".below")
			b.stopAgent()
			shim := parentOf(t, pid)
			must(t, syscall.Kill(shim, syscall.SIGSTOP))
			removeFiles(t, b.stateDir(id), lose...)
			b.start()
			eventually(t, "word of the shim", func() bool {
				return strings.Contains(b.instance(id).Status.Reason,
					fmt.Sprintf("process %d, holds the lock, but does not answer; kill that process, or stop the instance", shim))
			})
			reports := len(b.history(id))
			time.Sleep(2 * adoptRetry)
			if got := b.history(id)[reports:]; len(got) > 0 {
				t.Errorf("the same was told again: %q", got)
			}
			grace := model.Second
			b.stop(id, &grace)
			if i := b.await(id, model.ObservedStopped); i.Status.Reason != "shim_lost" {
				t.Errorf("stopped as %+v", i.Status)
			}
			if alive(pid) || alive(below) || alive(shim) {
				t.Error("something of it runs on")
			}
		})
	}
}

// The disk loses the launch record and the identity of the shim while the instance runs. The agent finds the shim even
// if the shim does not answer, and kills everything of the instance before it starts the program again.
func TestLaunchAndShimLost(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, dir string, shim int){
		"files gone": func(t *testing.T, dir string, _ int) { removeFiles(t, dir, "launch", "shim") },
		"all gone":   func(t *testing.T, dir string, _ int) { removeFiles(t, dir, "launch", "shim", "main", "control") },
		"shim hangs": func(t *testing.T, dir string, shim int) {
			removeFiles(t, dir, "launch", "shim", "main")
			must(t, syscall.Kill(shim, syscall.SIGSTOP))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, allowRoot)
			pidFile := filepath.Join(b.dir, "pid")
			id := b.run("web",
				sh("setsid env -i sleep 1000 & echo $! > "+pidFile+".below; echo $$ > "+pidFile+"; exec sleep 1000"), nil)
			b.await(id, model.ObservedReady)
			pid, below := pidOf(t, pidFile), pidOf(t, pidFile+".below")
			b.stopAgent()
			lose(t, b.stateDir(id), parentOf(t, pid))
			b.start()
			eventually(t, "a start in its place", func() bool {
				i := b.instance(id)
				return i.Ready() && pidOf(t, pidFile) != pid
			})
			if alive(pid) || alive(below) {
				t.Error("two run")
			}
		})
	}
}

// If a launch record can't be read for a time, nothing of the instance is killed or removed. Once the record can be
// read again, the same program is adopted.
func TestLaunchThatCannotBeReadNow(t *testing.T) {
	b := newBench(t, allowRoot)
	pidFile := filepath.Join(b.dir, "pid")
	id := b.run("web", sh("echo $$ > "+pidFile+"; exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	pid := pidOf(t, pidFile)
	b.stopAgent()
	launch := filepath.Join(b.stateDir(id), "launch")
	must(t, os.Rename(launch, launch+".kept"))
	must(t, os.Mkdir(launch, 0o700)) // so that the launch record can't be read
	b.start()
	eventually(t, "word that it was not adopted", func() bool {
		return strings.HasPrefix(b.instance(id).Status.Reason, "not_adopted: ")
	})
	must(t, os.Remove(launch))
	must(t, os.Rename(launch+".kept", launch))
	b.await(id, model.ObservedReady)
	if pidOf(t, pidFile) != pid || !alive(pid) {
		t.Errorf("pid %d was %d", pidOf(t, pidFile), pid)
	}
}

func (b *bench) stateDir(id model.InstanceID) string {
	return filepath.Join(b.dir, "data", "driver", "state", string(id))
}

func removeFiles(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		must(t, os.Remove(filepath.Join(dir, name)))
	}
}

func parentOf(t *testing.T, pid int) (parent int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, line, _ := strings.Cut(string(status), "\nPPid:")
	if _, err := fmt.Sscan(line, &parent); err != nil {
		t.Fatalf("the parent of %d: %v", pid, err)
	}
	return parent
}
