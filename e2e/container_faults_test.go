package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/internal/testbed/ctrd"
)

// loudBytes is how much the job loud writes while its agent is away.
const loudBytes = 8 * 1_250_000

// onGo are scripts that containers run once their file go exists, by job.
var onGo = map[string]string{
	"seven":  "exit 7",
	"struck": "kill -SEGV $$",
	"greedy": "dd if=/dev/zero of=/dev/null bs=200M count=1",
	"loud":   "seq 1000000 2249999; exit 3",
}

// faulty is a cluster of one node, and another one with a containerd in common.
type faulty struct {
	*cluster
	rig       *containerRig
	agent     *member
	neighbour *cluster
	calm      map[string][]int // the processes of the neighbour's instances, by id
}

// containerd, the agent and our shims are killed in turn and at the same time. Exit codes and logs are complete, what
// runs goes on, and when everything is stopped, nothing is left. A neighbour that uses the same containerd notices
// nothing.
func TestContainerFaults(t *testing.T) {
	long(t)
	t.Parallel()
	require(t, "containerd", "ctr", "runc", "busybox")
	f := newFaulty(t)
	_ = t.Run("RuntimeKilled", f.runtimeKilled) && t.Run("AgentAndRuntimeKilled", f.bothKilled) &&
		t.Run("ShimKilled", f.shimKilled) && t.Run("MachineKilled", f.machineKilled)
	if t.Failed() {
		return
	}
	f.reset(t)
	f.nothingOfContainers(t, f.rig)
	f.nothingRuns(t)
	f.calmAsEver(t)
	f.neighbour.reset(t)
	f.neighbour.nothingOfContainers(t, f.rig)
}

func newFaulty(t *testing.T) *faulty {
	t.Helper()
	f := &faulty{rig: newContainerRig(t)}
	f.cluster = newCluster(t, options{servers: 1, agents: 1})
	f.neighbour = newCluster(t, options{servers: 1, agents: 1})
	f.agent = f.agents[0]
	f.rig.registry.Push("site:1", siteImage(t, "one", ctrd.File{Name: "work/", Mode: 0o777}))
	for _, c := range []*cluster{f.cluster, f.neighbour} {
		f.rig.configure(t, c)
		for _, m := range c.members() {
			m.start(t)
		}
	}
	for _, c := range []*cluster{f.cluster, f.neighbour} {
		c.waitEligible(t, c.agents...)
		c.awaitRuntime(t, true)
	}
	f.neighbour.must(t, "job", "run", f.neighbour.writeText(t, "calm.hcl", siteJob("calm", 1, "")), "--detach")
	steady := siteJob("steady", 1, "    restart { delay = \"1s\" }")
	f.must(t, "job", "run", f.writeText(t, "steady.hcl", steady), "--detach")
	for name, script := range onGo {
		f.must(t, "job", "run", f.writeText(t, name+".hcl", fmt.Sprintf(`job %q {
  group "site" {
    container {
      image      = "%s/site:1"
      entrypoint = ["sh", "-c", "cd /work; while [ ! -e go ]; do sleep 0.1; done; %s"]
    }
    resources { memory = "32MiB" }
    restart { delay = "5m" }
  }
}
`, name, registryName, script)), "--detach")
	}
	f.neighbour.waitReady(t, "calm", 1)
	for _, name := range slices.Concat([]string{"steady"}, slices.Collect(maps.Keys(onGo))) {
		f.waitReady(t, name, 1)
	}
	f.calm = pids(f.neighbour.instances())
	return f
}

// calmAsEver checks that the neighbour's instances run on in the same processes, were never restarted, and are ready.
func (f *faulty) calmAsEver(t *testing.T) {
	t.Helper()
	if now := pids(f.neighbour.instances()); !maps.EqualFunc(now, f.calm, slices.Equal) {
		t.Errorf("the neighbour's instances are %v, and were %v", now, f.calm)
	}
	for _, i := range f.neighbour.living(t, "calm") {
		if !i.Ready || i.Restarts != 0 {
			t.Errorf("the neighbour has %+v", i)
		}
	}
}

// holder returns the only living instance of a job.
func (f *faulty) holder(t *testing.T, job string) instanceView {
	t.Helper()
	all := f.living(t, job)
	if len(all) != 1 {
		t.Fatalf("%s has the instances %+v", job, all)
	}
	return all[0]
}

// shimOf returns the process id of an instance's shim.
func (f *faulty) shimOf(t *testing.T, id string) int {
	t.Helper()
	table := procs.Table()
	for _, pid := range f.shims(f.agent) {
		if strings.Contains(table[pid].Args(), "/"+id+"\x00") {
			return pid
		}
	}
	t.Fatalf("instance %s has no shim", id)
	return 0
}

// unharmed checks that steady runs on in the same processes, was never restarted, and is ready.
func (f *faulty) unharmed(t *testing.T, before map[string][]int) {
	t.Helper()
	i := f.holder(t, "steady")
	if now := pids(f.instances())[i.ID]; !i.Ready || i.Restarts != 0 || len(now) == 0 || !slices.Equal(now, before[i.ID]) {
		t.Errorf("steady runs as %v, and ran as %v: %+v", now, before[i.ID], i)
	}
}

// runtimeKilled kills containerd, and starts it again.
func (f *faulty) runtimeKilled(t *testing.T) {
	before := pids(f.instances())
	f.rig.kill(t)
	f.awaitRuntime(t, false)
	f.unharmed(t, before)
	f.rig.restart(t)
	f.awaitRuntime(t, true)
	f.unharmed(t, before)
}

// bothKilled kills containerd and the agent. While both are away, programs end in several ways, and one writes 10 MB.
// The next agent needs no containerd to tell how they ended.
func (f *faulty) bothKilled(t *testing.T) {
	before := pids(f.instances())
	f.agent.Kill()
	f.rig.kill(t)
	f.letGo(t)
	f.agent.start(t)
	f.waitEligible(t, f.agent)
	f.awaitRuntime(t, false)
	f.checkEnds(t)
	f.unharmed(t, before)
	f.rig.restart(t)
	f.awaitRuntime(t, true)
	f.unharmed(t, before)
}

// letGo lets the programs of onGo go on, and waits until they have ended.
func (f *faulty) letGo(t *testing.T) {
	t.Helper()
	running := f.instances()
	shims := map[string]int{}
	for name := range onGo {
		id := f.holder(t, name).ID
		shims[name] = f.shimOf(t, id)
		i := slices.IndexFunc(running[id], func(p procs.Row) bool { return strings.Contains(p.Args(), "while [ ! -e go ]") })
		if i < 0 {
			t.Fatalf("%s runs as %v", name, running[id])
		}
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/root/work/go", running[id][i].PID), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "the end of the programs", patience, func() error {
		table := procs.Table()
		for name, pid := range shims {
			if p, runs := table[pid]; runs && !p.Zombie {
				return fmt.Errorf("the shim of %s runs", name)
			}
		}
		return nil
	})
}

// checkEnds checks what the agent says about the ends of the programs of onGo, and the logs of the loud one.
func (f *faulty) checkEnds(t *testing.T) {
	t.Helper()
	for name, want := range map[string]struct {
		reason string
		code   int
	}{"seven": {"exited", 7}, "struck": {"signaled", 139}, "greedy": {"oom_killed", 137}, "loud": {"exited", 3}} {
		waitFor(t, "the end of "+name, patience, func() error {
			i := f.holder(t, name)
			if i.Reason != want.reason || i.ExitCode == nil || *i.ExitCode != want.code || i.Restarts != 1 {
				return fmt.Errorf("%+v", i)
			}
			return nil
		})
	}
	out := f.must(t, "logs", f.holder(t, "loud").ID)
	next := 1_000_000
	for line := range strings.Lines(out) {
		if line != fmt.Sprintf("%d\n", next) {
			t.Errorf("line %q of the logs, want %d", line, next)
			break
		}
		next++
	}
	if len(out) != loudBytes {
		t.Errorf("%d bytes of logs, want %d", len(out), loudBytes)
	}
}

// restarted waits until steady was restarted in place for the n-th time, because its shim was lost. Nothing of the
// processes before may run.
func (f *faulty) restarted(t *testing.T, n int, before []int) {
	t.Helper()
	waitFor(t, "the restart of steady", patience, func() error {
		if i := f.holder(t, "steady"); i.Restarts != n || !i.Ready {
			return fmt.Errorf("%+v", i)
		}
		return nil
	})
	table := procs.Table()
	for _, pid := range before {
		if p, runs := table[pid]; runs && !p.Zombie {
			t.Errorf("process %d of the run before still runs", pid)
		}
	}
	lost := 0
	for _, e := range f.events(t) {
		if e.Subject == "instance/"+f.holder(t, "steady").ID && strings.HasPrefix(e.Data["reason"], "shim_lost") {
			lost++
		}
	}
	if lost < n {
		t.Errorf("%d events name shim_lost, want %d", lost, n)
	}
}

// shimKilled kills our shim of a container: while the agent runs, while it is away, and while containerd is away too.
// There is no other shim: containerd runs nothing.
func (f *faulty) shimKilled(t *testing.T) {
	steady := f.holder(t, "steady").ID
	processes := func() []int { return pids(f.instances())[steady] }
	before := processes()
	procs.Kill(f.shimOf(t, steady))
	f.restarted(t, 1, before)

	before = processes()
	f.agent.Kill()
	procs.Kill(f.shimOf(t, steady))
	f.agent.start(t)
	f.waitEligible(t, f.agent)
	f.restarted(t, 2, before)

	before = processes()
	f.rig.kill(t)
	f.awaitRuntime(t, false)
	procs.Kill(f.shimOf(t, steady))
	waitFor(t, "a start that waits for containerd", patience, func() error {
		if i := f.holder(t, "steady"); i.Ready || !strings.HasPrefix(i.Reason, "runtime_down") {
			return fmt.Errorf("%+v", i)
		}
		return nil
	})
	f.rig.restart(t)
	f.awaitRuntime(t, true)
	f.restarted(t, 3, before)
}

// machineKilled kills the agent and everything that it runs, and containerd, and starts both again after a reboot.
func (f *faulty) machineKilled(t *testing.T) {
	f.rig.kill(t)
	f.agent.die(t)
	f.rig.restart(t)
	f.agent.reboot(t, 1)
	f.waitEligible(t, f.agent)
	waitFor(t, "steady after the reboot", patience, func() error {
		all := f.living(t, "steady")
		all = slices.DeleteFunc(all, func(i instanceView) bool { return i.Observed == "lost" })
		if len(all) != 1 || !all[0].Ready {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
}

// nothingRuns waits until no shim and no door of the cluster runs, and no control socket of an instance is left.
func (f *faulty) nothingRuns(t *testing.T) {
	t.Helper()
	waitFor(t, "the end of all shims", patience, func() error {
		sockets, err := filepath.Glob(f.agent.data() + "/driver/state/*/control")
		if left := slices.Concat(f.shims(), f.doorsOf(f.agent)); len(left) > 0 || len(sockets) > 0 {
			return fmt.Errorf("processes %v, sockets %v", left, sockets)
		}
		return err
	})
}
