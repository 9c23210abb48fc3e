package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/outspan/outspan/fsm"
)

// A restarted agent can't tell whether a program runs: its shim holds its lock and does not answer, and the disk has lost what tells of it. The instance is not
// ready, but nobody is told that it has ended, and nothing is started in its place. Once the shim answers it is the same program.
func TestShimThatDoesNotAnswerIsAwaited(t *testing.T) {
	b := newBench(t, allowRoot)
	pidFile := filepath.Join(b.dir, "pid")
	id := b.run("web", sh("echo $$ > "+pidFile+"; exec sleep 1000"), nil)
	b.await(id, fsm.ObservedReady)
	pid := pidOf(t, pidFile)
	b.stopAgent()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	var shim int
	_, line, _ := strings.Cut(string(status), "\nPPid:")
	if _, err := fmt.Sscan(line, &shim); err != nil {
		t.Fatalf("the parent of %d: %v", pid, err)
	}
	must(t, syscall.Kill(shim, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(shim, syscall.SIGCONT) })
	must(t, os.Remove(filepath.Join(b.dir, "data", "driver", "state", string(id), "shim")))
	reports := len(b.history(id))

	b.start()
	eventually(t, "word that it was not adopted", func() bool {
		st := b.m.State()
		i, _ := st.Instances.Get(id)
		return strings.HasPrefix(i.Status.Reason, "not_adopted: ") && i.Status.Observed == fsm.ObservedUnready
	})
	must(t, syscall.Kill(shim, syscall.SIGCONT))
	i := b.await(id, fsm.ObservedReady)
	if got := b.history(id)[reports:]; i.Status.Restarts != 0 || pidOf(t, pidFile) != pid || !alive(pid) || slices.ContainsFunc(got, func(s string) bool { return s != "ready" && !strings.HasPrefix(s, "unready not_adopted") }) {
		t.Errorf("afterwards: %+v, pid %d was %d, reported %q", i.Status, pidOf(t, pidFile), pid, got)
	}
	b.stop(id, nil)
	b.await(id, fsm.ObservedStopped)
	if alive(pid) {
		t.Error("it runs on after it was stopped")
	}
}
