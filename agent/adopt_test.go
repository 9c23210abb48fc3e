package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// An agent that restarts adopts its instances. Their programs continue, and the instances are never reported as not
// ready.
func TestAgentRestartAdopts(t *testing.T) {
	b := newBench(t, allowRoot)
	port, health := freePort(t, "127.0.0.1"), filepath.Join(b.dir, "healthy")
	must(t, os.WriteFile(health, nil, 0o644))
	pidFile := filepath.Join(b.dir, "pid")
	g := sh("echo $$ > " + pidFile + "; exec " + os.Args[0] + " program http :${port.http} web " + health)
	g.Ports = []model.PortSpec{{Name: "http"}}
	g.Checks = []model.CheckSpec{
		{Name: "alive", Kind: model.CheckHTTP, Port: "http", Path: "/health", Interval: 100 * model.Millisecond, Failures: 1}}
	id := b.run("web", g, model.Ports{{Name: "http", Number: port}})
	b.await(id, model.ObservedReady)
	pid := pidOf(t, pidFile)
	before := b.instance(id)
	reports := len(b.history(id))

	b.stopAgent()
	if !alive(pid) {
		t.Fatal("the program ended with the agent")
	}
	b.start()
	eventually(t, "the inventory", func() bool { n := b.nodeRow(); return n.Registrations == 2 && !n.Return.Recovering })
	time.Sleep(300 * time.Millisecond) // long enough for a check to fail
	after := b.instance(id)
	if !after.Ready() || after.Status.Restarts != 0 || after.Marks.ReadySince != before.Marks.ReadySince ||
		pidOf(t, pidFile) != pid || !alive(pid) {
		t.Errorf("after the restart: %+v", after.Status)
	}
	if got := b.history(id)[reports-1:]; !slices.Equal(got, []string{"ready"}) {
		t.Errorf("reported after the restart: %q", got)
	}
	// The checks continue.
	must(t, os.Remove(health))
	i := b.await(id, model.ObservedUnready)
	if !strings.HasPrefix(i.Status.Reason, "check_failed: alive: status 503") {
		t.Errorf("reason %q", i.Status.Reason)
	}
	// The new agent can stop the program.
	b.stop(id, nil)
	b.await(id, model.ObservedStopped)
}

func (b *bench) nodeRow() fsm.Node {
	st := b.m.State()
	n, ok := st.Nodes.Get(b.node())
	if !ok {
		return fsm.Node{}
	}
	return *n
}

// If a program is killed while no agent runs, the next agent reports the instance as unready and restarts the program.
func TestEndsWhileAway(t *testing.T) {
	b := newBench(t, allowRoot)
	pidFile := filepath.Join(b.dir, "pid")
	id := b.run("web", sh("echo $$ > "+pidFile+"; exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	pid := pidOf(t, pidFile)
	b.stopAgent()
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	eventually(t, "the end of the shim", func() bool { return len(b.processes()) == 0 })
	b.start()
	eventually(t, "a restart", func() bool { i := b.instance(id); return i.Ready() && i.Status.Restarts == 1 })
	if got := b.history(id); !slices.Contains(got, "unready signaled") {
		t.Errorf("history %q", got)
	}
}

// A stop that began before the agent restarted is completed: the program is killed after its grace.
func TestRestartInMidStop(t *testing.T) {
	b := newBench(t, allowRoot)
	g := sh("trap '' TERM; while :; do sleep 0.05; done")
	g.Stop.Grace = 1500 * model.Millisecond
	id := b.run("web", g, nil)
	b.await(id, model.ObservedReady)
	b.stop(id, nil)
	b.await(id, model.ObservedDraining)
	b.stopAgent()
	b.start()
	if i := b.await(id, model.ObservedStopped); i.Status.Reason != "killed_after_grace" {
		t.Errorf("stopped as %+v", i.Status)
	}
}

// An agent that starts while no server is reachable adopts its instances. It restarts a program that ends, and reports
// the restart when the servers are back.
func TestRestartWithoutServers(t *testing.T) {
	b := newBench(t, allowRoot)
	pidFile := filepath.Join(b.dir, "pid")
	id := b.run("web", sh("echo $$ > "+pidFile+"; exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	first := pidOf(t, pidFile)
	b.setDown(true)
	b.stopAgent()
	b.start()
	must(t, syscall.Kill(first, syscall.SIGKILL))
	eventually(t, "a restart of the program", func() bool { return pidOf(t, pidFile) != first })
	b.setDown(false)
	b.awaitEligible()
	eventually(t, "the restart to be reported", func() bool {
		i := b.instance(id)
		return i.Ready() && i.Status.Restarts == 1
	})
}

// An agent on a copy of a node's data directory starts no instance: not while the servers refuse the agent, and not
// after it has lost the servers.
func TestCopyStartsNothing(t *testing.T) {
	b := newBench(t, allowRoot)
	pidFile := filepath.Join(b.dir, "pid")
	id := b.run("web", sh("echo $$ > "+pidFile+"; exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	first := pidOf(t, pidFile)
	b.stopAgent()
	must(t, syscall.Kill(first, syscall.SIGKILL))
	eventually(t, "the end of the program", func() bool { return len(b.processes()) == 0 })
	b.setOthers(true)
	b.start()
	stays := func(when string) {
		t.Helper()
		for range 20 {
			time.Sleep(50 * time.Millisecond)
			if pidOf(t, pidFile) != first || len(b.processes()) > 0 {
				t.Fatalf("the program runs %s", when)
			}
		}
	}
	asked := b.count("register")
	eventually(t, "a refusal", func() bool { return b.count("register") > asked })
	stays("although the servers refuse the agent")
	b.setDown(true)
	stays("although the servers refused the agent before they were lost")
	b.setOthers(false)
	b.setDown(false)
	eventually(t, "a start", func() bool { i := b.instance(id); return pidOf(t, pidFile) != first && i.Ready() })
}

// An unreadable journal does no harm, because the driver knows what runs, and the servers know the assignments. The
// agent only forgets that an instance has failed, and tries that instance again.
func TestGarbageJournal(t *testing.T) {
	b := newBench(t, allowRoot)
	pidFile := filepath.Join(b.dir, "pid")
	id := b.run("web", sh("echo $$ > "+pidFile+"; exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	broken := sh("exit 1")
	broken.Restart.Attempts = 1
	bad := b.run("bad", broken, nil)
	b.await(bad, model.ObservedFailed)
	pid := pidOf(t, pidFile)
	b.stopAgent()
	file := filepath.Join(b.cfg.DataDir, "journal")
	for _, tt := range []struct {
		name    string
		content func(whole []byte) []byte
	}{
		{"gone", nil},
		{"torn", func(whole []byte) []byte { return whole[:len(whole)-3] }},
		{"empty", func([]byte) []byte { return nil }},
		{"noise", func([]byte) []byte { return []byte("what is this") }},
		{"flipped", flip},
	} {
		t.Log(tt.name)
		if whole, err := os.ReadFile(file); tt.content == nil || err != nil {
			must(t, os.Remove(file))
		} else {
			must(t, os.WriteFile(file, tt.content(whole), 0o600))
		}
		reports, failures := len(b.history(id)), b.instance(bad).Status.Generation
		b.start()
		eventually(t, "the instance to be known again", func() bool {
			e, known := b.agent.home.records.entries()[id]
			return known && e.Assignment.Spec != nil && e.Status.Observed == model.ObservedReady
		})
		if pidOf(t, pidFile) != pid || !alive(pid) {
			t.Error("it was started again")
		}
		for _, s := range b.history(id)[reports-1:] {
			if s != "ready" && s != "pending" {
				t.Errorf("reported %q", s)
			}
		}
		eventually(t, "the failed one to be known as failed", func() bool {
			i := b.instance(bad)
			return i.Status.Observed == model.ObservedFailed && (tt.name == "torn" || i.Status.Generation > failures)
		})
		b.stopAgent()
	}
	b.start()
	b.stop(id, nil)
	b.await(id, model.ObservedStopped) // works only if the generations of the new reports exceed all earlier ones
	b.stop(bad, nil)
	b.await(bad, model.ObservedStopped)
}

func flip(b []byte) []byte {
	c := slices.Clone(b)
	c[len(c)/2] ^= 0x10
	return c
}

func TestDamagedIdentity(t *testing.T) {
	b := newBench(t, allowRoot)
	b.stopAgent()
	must(t, os.WriteFile(filepath.Join(b.cfg.DataDir, "node"), []byte("x"), 0o600))
	var refused *model.Error
	if _, err := New(b.cfg); !errors.As(err, &refused) || !strings.Contains(refused.Message, "identity") ||
		refused.Hint == "" {
		t.Errorf("New: %v", err)
	}
}

func TestDataDir(t *testing.T) {
	b := newBench(t, allowRoot)
	info, err := os.Stat(b.cfg.DataDir)
	must(t, err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v", info.Mode().Perm())
	}
	var refused *model.Error
	if _, err := New(b.cfg); !errors.As(err, &refused) || refused.Code != CodeAgentRuns {
		t.Errorf("a second agent: %v", err)
	}
	id := b.node()
	b.stopAgent()
	b.start()
	if b.node() != id {
		t.Error("the node has another id after a restart")
	}
}

// When a node that was offline returns, instances without a replacement are adopted, and replaced ones are stopped.
func TestReturnsAfterOffline(t *testing.T) {
	b := newBench(t, allowRoot)
	keptPid, gonePid := filepath.Join(b.dir, "kept"), filepath.Join(b.dir, "gone")
	kept := b.run("kept", sh("echo $$ > "+keptPid+"; exec sleep 1000"), nil)
	gone := b.run("gone", sh("echo $$ > "+gonePid+"; exec sleep 1000"), nil)
	b.await(kept, model.ObservedReady)
	b.await(gone, model.ObservedReady)
	keptProcess, goneProcess := pidOf(t, keptPid), pidOf(t, gonePid)

	b.setDown(true)
	n := b.nodeRow()
	b.apply(&fsm.NodeHealth{ID: n.ID, Health: model.HealthOffline, BootID: n.Agent.BootID,
		Epoch: n.Agent.Epoch, Reason: "test"})
	b.apply(&fsm.InstanceStop{ID: gone, Cause: model.CauseNodeOffline, By: "replaced"})
	if i := b.instance(gone); i.Desired != model.DesiredStopped {
		t.Fatalf("desired %s", i.Desired)
	}
	b.setDown(false)

	i := b.await(gone, model.ObservedStopped)
	if i.Desired != model.DesiredStopped || alive(goneProcess) {
		t.Errorf("replaced one: %+v, process alive %v", i.Status, alive(goneProcess))
	}
	b.await(kept, model.ObservedReady)
	if !alive(keptProcess) || pidOf(t, keptPid) != keptProcess {
		t.Error("the one that was not replaced was disturbed")
	}
}

// After a restore, instances that the servers don't know keep running until an operator has confirmed the restore.
func TestUnconfirmedStopsNothingUnknown(t *testing.T) {
	b := newBench(t, allowRoot)
	pidFile := filepath.Join(b.dir, "pid")
	id := b.run("web", sh("echo $$ > "+pidFile+"; exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	pid := pidOf(t, pidFile)
	b.change(func(a *transport.Assignments) { // the restored state does not know the instance
		a.Instances, a.Unconfirmed = nil, true
		a.Incarnation = 1
	})
	b.apply(&fsm.InstanceRestart{ID: id}) // so that the long poll returns
	eventually(t, "the answer to be taken", func() bool { return b.seenIncarnation() == 1 })
	time.Sleep(100 * time.Millisecond)
	if !alive(pid) {
		t.Fatal("it was stopped")
	}
	b.change(func(a *transport.Assignments) { a.Instances, a.Incarnation = nil, 1 })
	b.apply(&fsm.InstanceRestart{ID: id})
	eventually(t, "the unknown instance to be stopped", func() bool { return !alive(pid) })
}

// The working directory of a stopped instance is removed, and its logs are kept. If an agent exits before it has
// removed the directory, the next agent does so.
func TestForgottenWorkIsRemoved(t *testing.T) {
	b := newBench(t, allowRoot)
	id := b.run("web", sh("echo kept >&2; echo data > file; exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	work := filepath.Join(b.cfg.DataDir, "driver", "work", string(id))
	_, err := os.Stat(filepath.Join(work, "file"))
	must(t, err)
	gone := func() bool { _, err := os.Stat(work); return errors.Is(err, fs.ErrNotExist) }
	b.stop(id, nil)
	eventually(t, "its working directory to be removed", gone)
	if got := b.log(id); got != "kept\n" {
		t.Errorf("its log is %q", got)
	}
	b.stopAgent()
	must(t, os.Mkdir(work, 0o700))
	b.start()
	eventually(t, "what an earlier agent left to be removed", gone)
}

func (b *bench) seenIncarnation() uint64 {
	return b.agent.home.records.lastSeen().Incarnation
}

// An agent ignores assignments that are older than those it last carried out, also after a restart of the agent.
func TestOlderAssignmentsAreIgnored(t *testing.T) {
	b := newBench(t, allowRoot)
	pidFile := filepath.Join(b.dir, "pid")
	id := b.run("web", sh("echo $$ > "+pidFile+"; exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	pid := pidOf(t, pidFile)
	b.change(func(a *transport.Assignments) { a.Instances, a.Index = nil, 1 }) // an answer from before the placement
	asked := b.count("assignments")
	b.apply(&fsm.InstanceRestart{ID: id})
	eventually(t, "some polls", func() bool { return b.count("assignments") > asked+2 })
	b.setDown(false)
	b.stopAgent()
	b.servers.mu.Lock()
	down := b.down
	b.down = true // keeps start from waiting for the inventory, which an agent with old assignments does not send
	b.servers.mu.Unlock()
	b.start()
	b.setDown(down)
	asked = b.count("assignments")
	eventually(t, "some polls after the restart", func() bool { return b.count("assignments") > asked+2 })
	if !alive(pid) {
		t.Error("an older answer stopped it")
	}
	b.change(nil)
	b.awaitEligible()
}

// An agent that lacks a spec, although the server believes that the agent has it, asks once for all assignments.
func TestMissingSpec(t *testing.T) {
	b := newBench(t, allowRoot)
	b.servers.mu.Lock()
	b.sparing = true
	b.servers.mu.Unlock()
	id := b.run("web", sh("exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	asked := b.count("assignments")
	time.Sleep(300 * time.Millisecond)
	if more := b.count("assignments") - asked; more > 2 {
		t.Errorf("asked %d times in 0.3 s", more)
	}
}

// An agent never follows a cluster other than its own.
func TestAnotherCluster(t *testing.T) {
	b := newBench(t, allowRoot)
	pidFile := filepath.Join(b.dir, "pid")
	id := b.run("web", sh("echo $$ > "+pidFile+"; exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	b.stopAgent()
	other := newServersOf(t, "c2")
	own := b.servers
	b.servers, b.cfg.Servers = other, other
	other.down = true
	for s := own.m.State(); other.m.State().Index <= s.Index; { // until the other cluster has the higher index
		other.try(&fsm.NodeLabel{ID: "other"}) // refused, but the log gets an entry
	}
	b.start()
	other.setDown(false)
	eventually(t, "some tries", func() bool { return other.count("register") > 1 })
	if other.count("assignments") > 0 || !alive(pidOf(t, pidFile)) {
		t.Error("it followed another cluster")
	}
	if p := b.agent.Status().Problems["registration"]; !strings.Contains(p, "belongs to cluster c1") {
		t.Errorf("problem %q", p)
	}
	b.servers = own
}
