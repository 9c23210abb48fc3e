package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

func TestRunsAndStopsGracefully(t *testing.T) {
	b := newBench(t, allowRoot)
	pidFile, termFile := filepath.Join(b.dir, "pid"), filepath.Join(b.dir, "term")
	id := b.run("web",
		sh("trap 'date +%s%N > "+termFile+"; exit 0' TERM; echo $$ > "+pidFile+"; while :; do sleep 0.05; done"), nil)
	b.await(id, model.ObservedReady)
	pid := pidOf(t, pidFile)
	b.stop(id, nil)
	i := b.await(id, model.ObservedStopped)
	if i.Desired != model.DesiredStopped || i.Status.Reason != "" || i.Status.ExitCode == nil || *i.Status.ExitCode != 0 {
		t.Errorf("stopped as %+v", i.Status)
	}
	if alive(pid) {
		t.Error("the process is still there")
	}
	if _, err := os.Stat(termFile); err != nil {
		t.Error("the program never saw SIGTERM")
	}
	want := []string{"pending", "booting", "ready", "draining", "stopped"}
	if got := b.history(id); !slices.Equal(got, want) && !slices.Equal(got, want[1:]) {
		t.Errorf("history %q, want %q", got, want)
	}
	eventually(t, "the instance to be forgotten", func() bool { return len(b.agent.supervisors.list()) == 0 })
}

func allowRoot(c *Config) { c.Exec.AllowRoot = true }

func TestKillAfterGrace(t *testing.T) {
	b := newBench(t, allowRoot)
	pidFile := filepath.Join(b.dir, "pid")
	id := b.run("web", sh("trap '' TERM; echo $$ > "+pidFile+"; while :; do sleep 0.05; done"), nil)
	b.await(id, model.ObservedReady)
	pid := pidOf(t, pidFile)
	grace := 200 * model.Millisecond
	b.stop(id, &grace)
	i := b.await(id, model.ObservedStopped)
	if i.Status.Reason != "killed_after_grace" {
		t.Errorf("reason %q", i.Status.Reason)
	}
	if alive(pid) {
		t.Error("the process is still there")
	}
}

// If the servers want an instance stopped while its program still has grace left, the program is killed at once.
// proves P15
func TestStoppedKillsAtOnce(t *testing.T) {
	b := newBench(t, allowRoot)
	g := sh("trap '' TERM; while :; do sleep 0.05; done")
	g.Stop.Grace = 10 * model.Minute
	id := b.run("web", g, nil)
	b.await(id, model.ObservedReady)
	b.stop(id, nil)
	b.await(id, model.ObservedDraining)
	b.apply(&fsm.InstanceKill{ID: id, Now: true})
	if i := b.await(id, model.ObservedStopped); i.Status.Reason != "killed_after_grace" {
		t.Errorf("reason %q", i.Status.Reason)
	}
}

func TestCrashLoop(t *testing.T) {
	b := newBench(t, allowRoot)
	runs := filepath.Join(b.dir, "runs")
	g := sh("echo x >> " + runs + "; exit 3")
	g.Restart = model.RestartSpec{Attempts: 2, Interval: model.Minute, Delay: 20 * model.Millisecond}
	id := b.run("web", g, nil)
	i := b.await(id, model.ObservedFailed)
	if i.Status.Reason != "crash_loop" || i.Status.ExitCode == nil || *i.Status.ExitCode != 3 || i.Status.Restarts != 2 {
		t.Errorf("failed as %+v", i.Status)
	}
	if text, _ := os.ReadFile(runs); strings.Count(string(text), "x") != 3 {
		t.Errorf("it ran %d times, want 3", strings.Count(string(text), "x"))
	}
	// An operator can restart the failed instance.
	b.apply(&fsm.InstanceRestart{ID: id})
	eventually(t, "another run", func() bool {
		text, _ := os.ReadFile(runs)
		return strings.Count(string(text), "x") > 3
	})
	b.stop(id, nil)
	b.await(id, model.ObservedStopped)
}

func TestStartFailures(t *testing.T) {
	b := newBench(t, allowRoot)
	missing := sh("")
	missing.Exec.Command, missing.Exec.Args = "/nowhere/program", nil
	variable := sh("echo ${node.label.rack}")
	user := sh("true")
	user.Exec.User = "nobody-has-this-name" // without root, every user name is refused
	limit := sh("true")
	limit.Exec.Rlimits = map[string]uint64{"nonsense": 1}
	tests := []struct {
		name    string
		group   model.GroupSpec
		reason  []string
		restart int
	}{
		{"command", missing, []string{"start_failed: ", "/nowhere/program"}, 3},
		{"variable", variable, []string{"start_failed: ", "argument 2", "${node.label.rack}", "known are"}, 0},
		{"user", user, []string{"start_failed: ", "nobody-has-this-name"}, 0},
		{"rlimit", limit, []string{"start_failed: ", "nonsense"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			i := b.await(b.run(tt.name, tt.group, nil), model.ObservedFailed)
			for _, part := range tt.reason {
				if !strings.Contains(i.Status.Reason, part) {
					t.Errorf("reason %q does not contain %q", i.Status.Reason, part)
				}
			}
			if i.Status.Restarts != tt.restart {
				t.Errorf("%d restarts, want %d", i.Status.Restarts, tt.restart)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	b := newBench(t, allowRoot, func(c *Config) { c.Node.Labels = map[string]string{"rack": "r1"} })
	out := filepath.Join(b.dir, "out")
	g := sh("env > " + out + ".tmp; echo arg=$1 >> " + out + ".tmp; mv " + out + ".tmp " + out + "; exec sleep 1000")
	g.Exec.Args = append(g.Exec.Args, "sh", "${node.name}-${slot}-${port.http}-${node.label.rack}-$${slot}-${HOME}")
	g.Env = map[string]string{"LISTEN": ":${port.http}"}
	g.Ports = []model.PortSpec{{Name: "http"}}
	g.Volumes = []model.VolumeSpec{{Name: "my-data", Kind: model.VolumeLocal, Path: filepath.Join(b.dir, "place") + "/"}}
	volume := b.cfg.DataDir + "/volumes/web/g/0/my-data"
	if b.agent.cfg.Runtime.Capabilities().Binds {
		volume = filepath.Join(b.dir, "place")
	}
	id := b.run("web", g, model.Ports{{Name: "http", Number: 21777}})
	b.await(id, model.ObservedReady)
	var text []byte
	eventually(t, "the program's output", func() bool { text, _ = os.ReadFile(out); return len(text) > 0 })
	got := map[string]string{}
	for _, line := range strings.Split(string(text), "\n") {
		k, v, _ := strings.Cut(line, "=")
		if strings.HasPrefix(k, "OUTSPAN_") || k == "LISTEN" || k == "arg" {
			got[k] = v
		}
	}
	delete(got, "OUTSPAN_RUN")
	want := map[string]string{
		"LISTEN": ":21777", "arg": "n1-0-21777-r1-${slot}-${HOME}",
		"OUTSPAN_INSTANCE_ID": string(id), "OUTSPAN_JOB": "web", "OUTSPAN_GROUP": "g", "OUTSPAN_SLOT": "0",
		"OUTSPAN_MEMBER_ID": "web-g-0", "OUTSPAN_ATTEMPT": "0",
		"OUTSPAN_PEERS": filepath.Join(b.cfg.DataDir, "peers", "web", "g"),
		"OUTSPAN_NODE":  "n1", "OUTSPAN_NODE_ID": string(b.node()), "OUTSPAN_IP": "127.0.0.1", "OUTSPAN_PORT_HTTP": "21777",
		"OUTSPAN_VOLUME_MY_DATA": volume,
		"OUTSPAN_DIR":            filepath.Join(b.cfg.DataDir, "driver", "work", string(id)),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestRestartInPlace: a restart that an operator requests starts a new process in the same instance.
// proves A3
func TestRestartInPlace(t *testing.T) {
	b := newBench(t, allowRoot)
	pidFile := filepath.Join(b.dir, "pid")
	id := b.run("web", sh("echo $$ > "+pidFile+"; exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	first := pidOf(t, pidFile)
	b.apply(&fsm.InstanceRestart{ID: id})
	eventually(t, "another process", func() bool { return pidOf(t, pidFile) != first })
	eventually(t, "ready again", func() bool {
		i := b.instance(id)
		return i.Ready() && i.Status.Restarts == 1
	})
	if alive(first) {
		t.Error("the first process is still there")
	}
	want := []string{"booting", "ready", "unready restarting", "ready"}
	if got := b.history(id); !slices.Equal(slices.DeleteFunc(got, func(s string) bool { return s == "pending" }), want) {
		t.Errorf("history %q, want %q", got, want)
	}
}

// After a crash, an instance is not ready until its program runs again. The agent reports the reason, and restarts the
// program by itself.
// proves A3
func TestRestartAfterCrash(t *testing.T) {
	b := newBench(t, allowRoot)
	pidFile := filepath.Join(b.dir, "pid")
	id := b.run("web", sh("echo $$ > "+pidFile+"; exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	must(t, syscall.Kill(pidOf(t, pidFile), syscall.SIGSEGV))
	eventually(t, "a restart", func() bool {
		i := b.instance(id)
		return i.Ready() && i.Status.Restarts == 1
	})
	got := b.history(id)
	if !slices.Contains(got, "unready signaled") {
		t.Errorf("history %q", got)
	}
}

func TestShimLost(t *testing.T) {
	b := newBench(t, allowRoot)
	pidFile := filepath.Join(b.dir, "pid")
	id := b.run("web", sh("echo $$ > "+pidFile+"; while :; do sleep 0.05; done"), nil)
	b.await(id, model.ObservedReady)
	pid := pidOf(t, pidFile)
	for _, p := range b.processes() {
		if cmd, _ := os.ReadFile("/proc/" + strconv.Itoa(p) + "/cmdline"); strings.Contains(string(cmd), "\x00shim\x00") {
			must(t, syscall.Kill(p, syscall.SIGKILL))
		}
	}
	eventually(t, "a restart", func() bool { i := b.instance(id); return i.Ready() && i.Status.Restarts == 1 })
	if !slices.Contains(b.history(id), "unready shim_lost") {
		t.Errorf("history %q", b.history(id))
	}
	if alive(pid) {
		t.Error("what the shim left is still there")
	}
}

func TestOOM(t *testing.T) {
	b := newBench(t, allowRoot)
	if !b.agent.cfg.Runtime.Capabilities().MemoryCap {
		t.Skip("no cgroup access: memory caps are not enforced here")
	}
	g := sh("exec " + os.Args[0] + " program grow")
	g.Resources.MemoryBytes = 48 << 20
	g.Restart.Attempts = 1
	id := b.run("web", g, nil)
	if i := b.await(id, model.ObservedFailed); i.Status.Reason != "oom_killed" || i.Status.Restarts != 1 {
		t.Errorf("failed as %+v", i.Status)
	}
}
