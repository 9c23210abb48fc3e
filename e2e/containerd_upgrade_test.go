package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

// containerd2 builds containerd of version 2, which is a module of its own.
func containerd2(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "containerd2")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, ".")
	cmd.Dir = "../internal/testbed/containerd2"
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	began := time.Now()
	if out, err := output(cmd, 5*time.Minute); err != nil {
		t.Fatalf("build containerd: %v\n%s", err, out)
	}
	t.Logf("containerd 2 was built in %s", time.Since(began).Round(time.Second))
	return path
}

// containerd of the machine is stopped while containers run and an image is pulled, and containerd 2 goes on with the
// same file and directories. What runs does not end, programs that end meanwhile have their exit codes and logs, and
// the interrupted pull goes on. Afterwards old containers restart and new ones start. When everything is stopped and
// pruned, nothing is left, also of what the old version made.
func TestContainerdUpgrade(t *testing.T) {
	long(t)
	t.Parallel()
	require(t, "containerd", "ctr", "runc", "busybox", "go")
	program := containerd2(t)
	f := newFaulty(t)
	namespace := namespaceOf(f.nodes(t)[0])
	steady, before := f.holder(t, "steady").ID, pids(f.instances())
	f.must(t, "instance", "exec", steady, "--", "sh", "-c", "echo kept >/work/kept")
	f.awaitVersion(t, "containerd 1.")
	f.rig.registry.Push("other:1", siteImage(t, "two"))
	f.rig.registry.Trouble(false, time.Second)
	f.must(t, "job", "run", f.writeText(t, "late.hcl", strings.Replace(siteJob("late", 1, ""), "/site:1", "/other:1", 1)),
		"--detach")
	waitFor(t, "the begin of the pull", patience, func() error {
		if all := strings.Join(f.rig.ctr(t, namespace, "leases", "list", "-q"), " "); !strings.Contains(all, "pull-") {
			return fmt.Errorf("the leases are %s", all)
		}
		return nil
	})

	if err := f.rig.daemon.Stop(); err != nil {
		t.Fatal(err)
	}
	f.awaitRuntime(t, false)
	f.letGo(t)
	f.unharmed(t, before)
	f.rig.daemon.Program = program
	f.rig.restart(t)
	f.rig.registry.Trouble(false, 0)
	f.awaitVersion(t, "containerd 2.")
	f.checkEnds(t)
	f.unharmed(t, before)

	f.waitReady(t, "late", 1)
	f.must(t, "job", "run", f.writeText(t, "fresh.hcl", siteJob("fresh", 1, "")), "--detach")
	f.waitReady(t, "fresh", 1) // on top of what the old version unpacked
	f.agent.Kill()
	f.agent.start(t)
	f.waitEligible(t, f.agent)
	f.awaitVersion(t, "containerd 2.")
	f.unharmed(t, before)
	procs.Kill(f.shimOf(t, steady))
	f.restarted(t, 1, before[steady])
	if out := f.must(t, "instance", "exec", steady, "--", "cat", "/work/kept"); out != "kept\n" {
		t.Errorf("the layer of the instance has %q", out)
	}
	f.calmAsEver(t)
	f.reset(t)
	f.nothingOfContainers(t, f.rig)
	f.nothingRuns(t)
	f.must(t, "image", "prune", "--node", "n1")
	waitFor(t, "the end of all that containerd held", patience, func() error { return f.rig.holdsNothing(t, namespace) })
}

// awaitVersion waits until the first agents of both clusters have reported containerd of a version.
func (f *faulty) awaitVersion(t *testing.T, prefix string) {
	t.Helper()
	for _, c := range []*cluster{f.cluster, f.neighbour} {
		waitFor(t, prefix, patience, func() error {
			if out := c.must(t, "node", "status", "n1"); !strings.Contains(out, prefix) {
				return errors.New(out)
			}
			return nil
		})
	}
}
