package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

func hookSpec(name model.HookName, script string) model.HookSpec {
	return model.HookSpec{Name: name, Exec: []string{"/bin/sh", "-c", script}, Timeout: 20 * model.Second,
		OnFailure: model.HookAbort}
}

// withHooks returns an alteration that gives every instance the hooks of list.
func withHooks(list ...model.HookSpec) func(*transport.Assignment) {
	return func(a *transport.Assignment) {
		spec := *a.Spec
		spec.Hooks = list
		a.Spec = &spec
	}
}

// preparing returns an alteration that asks every instance for the preparation with the number seq. If seq is 0, no
// preparation is asked for.
func preparing(seq uint64, gates ...string) func(*transport.Assignment) {
	return func(a *transport.Assignment) {
		a.Prepare, a.Gates, a.Cause = seq, gates, model.CauseNodeDraining
	}
}

// prepared waits for the outcome of a preparation and returns it.
func (b *bench) prepared(id model.InstanceID, seq uint64) model.HookResult {
	b.t.Helper()
	eventually(b.t, "the outcome of the preparation", func() bool {
		h := b.instance(id).Status.Hook
		return h != nil && h.Seq == seq
	})
	return *b.instance(id).Status.Hook
}

// log returns what an instance has written to stderr.
func (b *bench) log(id model.InstanceID) string {
	b.t.Helper()
	task, ok := b.agent.supervisors.task(id)
	if !ok {
		b.t.Fatalf("no task of %s", id)
	}
	l, err := task.OpenLog(b.t.Context(), driver.Stderr, 0, false)
	must(b.t, err)
	defer l.Close()
	var all strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := l.Read(buf)
		all.Write(buf[:n])
		if err != nil {
			return all.String()
		}
	}
}

// A before_stop hook lets a leader resign before it is stopped. The hook runs once, in the instance's environment, and
// its output is in the instance's log. The gates are checked after the hook, and the program continues to run. After a
// restart of the agent, the hook of a finished preparation does not run again.
func TestBeforeStop(t *testing.T) {
	b := newBench(t, allowRoot)
	role, ran, pidFile := filepath.Join(b.dir, "role"), filepath.Join(b.dir, "ran"), filepath.Join(b.dir, "pid")
	say(t, role, `{"leader":true}`)
	resign := hookSpec(model.HookBeforeStop, `echo "$OUTSPAN_HOOK $OUTSPAN_STOP_CAUSE $OUTSPAN_SLOT ${slot}" >> `+ran+
		`; echo resigning; printf 'and done' >&2; echo '{"leader":false}' > `+role+`.new; mv `+role+`.new `+role)
	b.alter(withHooks(resign))
	b.alter(withRole(model.RoleCheckSpec{Exec: []string{"cat", role}, Interval: model.Hour, Timeout: 10 * model.Second}))
	id := b.run("db", sh("echo $$ > "+pidFile+"; exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	eventually(t, "the leader", func() bool { return b.instance(id).Status.Facts["leader"] == "true" })
	pid := pidOf(t, pidFile)
	b.alter(preparing(1, "!self.leader"))
	if r := b.prepared(id, 1); !r.OK || r.Message != "" {
		t.Errorf("prepared: %+v", r)
	}
	// The regular role check runs once an hour, so the role check after the hook found the resignation. The new fact was
	// reported no later than the outcome of the hook.
	if i := b.instance(id); i.Status.Facts["leader"] != "false" || !i.Ready() || !alive(pid) {
		t.Errorf("after the preparation: %+v, alive %v", i.Status, alive(pid))
	}
	if got := lines(ran); !slices.Equal(got, []string{"before_stop node_draining 0 0"}) {
		t.Errorf("the hook saw %q", got)
	}
	if got := b.log(id); !strings.Contains(got, "hook before_stop: resigning\n") ||
		!strings.Contains(got, "hook before_stop: and done\n") {
		t.Errorf("log %q", got)
	}
	b.stopAgent()
	b.start()
	eventually(t, "the agent to be back", func() bool { return b.instance(id).Status.Facts["leader"] == "false" })
	b.alter(preparing(2, "!self.leader"))
	if r := b.prepared(id, 2); !r.OK || len(lines(ran)) != 2 {
		t.Errorf("prepared again: %+v, the hook ran %d times", r, len(lines(ran)))
	}
	b.stop(id, nil)
	b.await(id, model.ObservedStopped)
}

// A preparation that fails is reported with the reason.
func TestBeforeStopFails(t *testing.T) {
	b := newBench(t, allowRoot)
	id := b.run("db", sh("exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	hook := func(script string, f func(*model.HookSpec)) func(*transport.Assignment) {
		h := hookSpec(model.HookBeforeStop, script)
		if f != nil {
			f(&h)
		}
		return withHooks(h)
	}
	goOn := func(h *model.HookSpec) { h.OnFailure = model.HookContinue }
	tests := []struct {
		name  string
		hook  func(*transport.Assignment)
		gates []string
		ok    bool
		want  string
	}{
		{"exit code", hook("echo no follower is in sync >&2; exit 3", nil), nil, false,
			`hook before_stop: exit code 3 ("no follower is in sync")`},
		{"continue", hook("exit 3", goOn), nil, true, "hook before_stop: exit code 3"},
		{"too long", hook("sleep 1000 & sleep 1000", func(h *model.HookSpec) {
			h.Timeout = 300 * model.Millisecond
		}), nil, false,
			"hook before_stop: it took longer than 300ms and was killed"},
		{"missing", withHooks(model.HookSpec{Name: model.HookBeforeStop, Exec: []string{"/nowhere/hook"}}),
			nil, false, "/nowhere/hook"},
		{"variable", hook("echo ${node.label.none}", nil), nil, false, "unknown variable"},
		{"no hook", withHooks(), nil, true, ""},
		{"gate, nothing known", withHooks(), []string{"self.drained"}, false,
			"self.drained: the fact drained is not known; the group has no role check"},
		{"continue is no gate", hook("exit 3", goOn), []string{"self.drained"}, false, "self.drained"},
	}
	for n, tt := range tests {
		seq := uint64(n + 1)
		b.alter(tt.hook)
		b.alter(preparing(seq, tt.gates...))
		if r := b.prepared(id, seq); r.OK != tt.ok || !strings.Contains(r.Message, tt.want) ||
			tt.want == "" && r.Message != "" {
			t.Errorf("%s: %+v, want %v and %q", tt.name, r, tt.ok, tt.want)
		}
	}
	eventually(t, "no hook to be left", func() bool { return len(b.processes()) == 2 }) // shim and program
	b.alter(withRole(model.RoleCheckSpec{Exec: []string{"echo", `{"leader":true}`}, Interval: model.Hour,
		Timeout: 10 * model.Second}))
	b.alter(withHooks())
	b.alter(preparing(100, "!self.leader"))
	if r := b.prepared(b.run("leader", sh("exec sleep 1000"), nil), 100); r.OK ||
		r.Message != "!self.leader does not hold: leader is true" {
		t.Errorf("a leader: %+v", r)
	}
	if i := b.instance(id); !i.Ready() {
		t.Errorf("after all of it: %+v", i.Status)
	}
}

// If an agent exits while a hook runs, the next agent runs the hook again. If the servers give a preparation up, its
// hook is killed.
func TestBeforeStopUnfinished(t *testing.T) {
	b := newBench(t, allowRoot)
	ran, free := filepath.Join(b.dir, "ran"), filepath.Join(b.dir, "free")
	b.alter(withHooks(hookSpec(model.HookBeforeStop, `echo x >> `+ran+`; test -e `+free+` || exec sleep 1000`)))
	id := b.run("db", sh("exec sleep 1000"), nil)
	b.await(id, model.ObservedReady)
	b.alter(preparing(1))
	eventually(t, "the hook to run", func() bool { return len(lines(ran)) == 1 })
	b.stopAgent()
	if b.instance(id).Status.Hook != nil {
		t.Errorf("an outcome of a hook that was cut short: %+v", b.instance(id).Status.Hook)
	}
	b.start()
	eventually(t, "the hook to run again", func() bool { return len(lines(ran)) == 2 })
	b.alter(preparing(0))
	eventually(t, "the hook to be killed", func() bool { return len(b.processes()) == 2 })
	must(t, os.WriteFile(free, nil, 0o644))
	b.alter(preparing(2))
	if r := b.prepared(id, 2); !r.OK {
		t.Errorf("%+v", r)
	}
	// A stop doesn't wait for a preparation.
	must(t, os.Remove(free))
	b.alter(preparing(3))
	eventually(t, "the hook to run once more", func() bool { return len(lines(ran)) == 4 })
	b.stop(id, nil)
	b.await(id, model.ObservedStopped)
}

// An instance becomes ready only after its after_start hook has finished.
func TestAfterStart(t *testing.T) {
	b := newBench(t, allowRoot)
	free, ran := filepath.Join(b.dir, "free"), filepath.Join(b.dir, "ran")
	b.alter(
		withHooks(hookSpec(model.HookAfterStart, `echo $OUTSPAN_HOOK >> `+ran+`; until test -e `+free+
			`; do sleep 0.02; done; echo joined`)))
	id := b.run("db", sh("exec sleep 1000"), nil)
	eventually(t, "the hook to run", func() bool { return len(lines(ran)) == 1 })
	time.Sleep(2 * settleTime) // long enough for an instance without a hook to become ready
	if i := b.instance(id); i.Status.Observed != model.ObservedBooting {
		t.Errorf("while the hook runs it is %s", i.Status.Observed)
	}
	b.stopAgent() // an unfinished hook is run again
	b.start()
	eventually(t, "the hook to run again", func() bool { return len(lines(ran)) == 2 })
	must(t, os.WriteFile(free, nil, 0o644))
	b.await(id, model.ObservedReady)
	if got := b.log(id); !strings.Contains(got, "hook after_start: joined\n") {
		t.Errorf("log %q", got)
	}
	b.stopAgent() // a finished hook is not run again
	b.start()
	b.apply(&fsm.InstanceRestart{ID: id})
	eventually(t, "a restart", func() bool { i := b.instance(id); return i.Ready() && i.Status.Restarts == 1 })
	if got := len(lines(ran)); got != 3 {
		t.Errorf("it ran %d times: twice for the first program, once for the second", got)
	}
}

func TestAfterStartFails(t *testing.T) {
	b := newBench(t, allowRoot)
	hook := hookSpec(model.HookAfterStart, "echo nobody answers; exit 4")
	b.alter(withHooks(hook))
	g := sh("exec sleep 1000")
	g.Restart = model.RestartSpec{Attempts: 2, Interval: model.Minute, Delay: 20 * model.Millisecond}
	id := b.run("db", g, nil)
	i := b.await(id, model.ObservedFailed)
	if want := `hook_failed: after_start: exit code 4 ("nobody answers")`; i.Status.Reason != want ||
		i.Status.Restarts != 2 {
		t.Errorf("failed as %+v, want %q", i.Status, want)
	}
	if got := b.history(id); slices.Contains(got, "ready") {
		t.Errorf("history %q", got)
	}
	eventually(t, "the program to be gone", func() bool { return len(b.processes()) == 0 })
	hook.OnFailure = model.HookContinue
	b.alter(withHooks(hook))
	b.await(b.run("other", g, nil), model.ObservedReady)
}

// The gates are checked right before the stop signal. While a gate doesn't hold, the signal is delayed, at most until
// a second before the end of the grace.
func TestLastLook(t *testing.T) {
	for _, tt := range []struct {
		name   string
		leads  time.Duration // for how long the instance leads after the stop began; 0 means that the role check fails
		signal time.Duration // from the end of the drain delay to the signal
	}{
		{"it leads no more", time.Millisecond, 0},
		{"it leads for a while", 5500 * time.Millisecond, 4 * time.Second}, // the first 2 s are the drain delay
		{"it leads on", time.Hour, 9 * time.Second},
		{"nobody knows", 0, 9 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				b.mem.stubborn = true
				var began time.Time
				b.mem.exec = func(_ context.Context, c driver.Command) (int, error) {
					text := `{"leader":false}`
					if time.Since(began) < tt.leads {
						text = `{"leader":true}`
					}
					_, err := c.Stdout.Write([]byte(text))
					return map[bool]int{true: 1}[tt.leads == 0], err
				}
				b.start()
				g := sh("")
				g.Stop = model.StopSpec{DrainDelay: 2 * model.Second, Grace: 10 * model.Second}
				b.alter(withRole(model.RoleCheckSpec{Exec: []string{"role"}}))
				b.alter(func(a *transport.Assignment) { a.Gates = []string{"!self.leader"} })
				id := b.run("db", g)
				b.pass(time.Second)
				b.want(id, model.ObservedReady, "")
				began = time.Now()
				b.stop(id, nil)
				task := b.mem.task(id)
				b.pass(2*time.Second + tt.signal - 900*time.Millisecond)
				if task.asked() || ended(task) {
					t.Error("the signal came early")
				}
				b.pass(1100 * time.Millisecond)
				if !task.asked() {
					t.Error("the signal did not come")
				}
				b.pass(12*time.Second - time.Since(began) - 100*time.Millisecond)
				if ended(task) {
					t.Error("killed within its grace")
				}
				b.pass(200 * time.Millisecond)
				b.want(id, model.ObservedStopped, "killed_after_grace")
			})
		})
	}
}

// If the program does not run, a preparation fails at once, so that the servers need not wait for the timeout of the
// preparation.
func TestPreparationWithoutAProgram(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.mem.lifetime = 10 * time.Second
		b.start()
		g := sh("")
		g.Restart = model.RestartSpec{Attempts: 3, Interval: model.Minute, Delay: 30 * model.Second}
		id := b.run("db", g)
		b.pass(11 * time.Second)
		b.want(id, model.ObservedUnready, "exited")
		b.alter(preparing(1))
		b.pass(time.Second)
		if h := b.instance(id).Status.Hook; h == nil || h.Seq != 1 || h.OK ||
			h.Message != "the program does not run: exited" {
			t.Errorf("%+v", h)
		}
		b.pass(30 * time.Second) // the program runs again
		b.alter(preparing(2))
		b.pass(time.Second)
		if h := b.instance(id).Status.Hook; h == nil || h.Seq != 2 || !h.OK {
			t.Errorf("%+v", h)
		}
	})
}

func TestHookLog(t *testing.T) {
	var notes []string
	l := &hookLog{name: model.HookBeforeStop, left: hookOutput, note: func(text string) error {
		if len(text) > driver.NoteLimit {
			t.Errorf("a note of %d bytes", len(text))
		}
		notes = append(notes, text)
		return nil
	}}
	for _, part := range []string{"one\ntw", "o\n\n", "bad \xff byte\n", strings.Repeat("x", 3000) + "\n",
		strings.Repeat(strings.Repeat("y", 99)+"\n", 100), "end"} {
		n, err := l.Write([]byte(part))
		if err != nil || n != len(part) {
			t.Errorf("%d %v", n, err)
		}
	}
	l.finish()
	got := strings.Split(strings.TrimSuffix(strings.Join(notes, ""), "\n"), "\n")
	want := []string{"one", "two", "", "bad ? byte", strings.Repeat("x", lineLimit)}
	want = append(want, slices.Repeat([]string{strings.Repeat("y", 99)}, 100)...)
	want = append(want, "end")
	for i := range want {
		want[i] = "hook before_stop: " + want[i]
	}
	if !slices.Equal(got, want) || l.last != "end" {
		t.Errorf("%q", got)
	}
	l.left, notes = 10, nil
	_, _ = l.Write([]byte("12345678\n12345678\n"))
	if len(notes) != 1 || notes[0] != "hook before_stop: 12345678\n" {
		t.Errorf("beyond the limit: %q", notes)
	}
}
