package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

const (
	// hookTimeout bounds a hook whose spec sets no timeout.
	hookTimeout = 30 * time.Second
	// settleGates is how long the gates of an instance may take to hold after its hook: a leader that resigned is not yet
	// a follower. The servers allow ten seconds more than the hook's timeout for a preparation.
	settleGates = 5 * time.Second
	// gateAgain is the pause between two checks of gates that don't hold.
	gateAgain = time.Second
	// lastGrace is how much of the grace is left to the program when its gates delay the stop signal. Of a grace below two
	// seconds, half is left.
	lastGrace = time.Second
	// hookOutput is how many bytes of a hook's stdout, and of its stderr, go to the instance's log.
	hookOutput = 64 << 10
)

func hookOf(a transport.Assignment, name model.HookName) (model.HookSpec, bool) {
	if a.Spec == nil {
		return model.HookSpec{}, false
	}
	n := slices.IndexFunc(a.Spec.Hooks, func(h model.HookSpec) bool { return h.Name == name })
	if n < 0 {
		return model.HookSpec{}, false
	}
	return a.Spec.Hooks[n], true
}

// hookRun is one run of a hook beside a running program.
type hookRun struct {
	hook  model.HookSpec
	task  Task
	argv  []string
	env   map[string]string
	alone bool // an earlier agent may have left the hook running
}

// newHookRun prepares a run of hook for the running program task. Code: invalid (the hook's command has an unknown
// variable).
func (i *instance) newHookRun(task Task, want transport.Assignment, hook model.HookSpec) (hookRun, error) {
	argv, err := i.shared.values(want).expandAll("command of hook "+string(hook.Name)+", word", hook.Exec)
	if err != nil {
		return hookRun{}, err
	}
	env := map[string]string{"OUTSPAN_HOOK": string(hook.Name)}
	if want.Cause != "" && hook.Name == model.HookBeforeStop {
		env["OUTSPAN_STOP_CAUSE"] = string(want.Cause)
	}
	return hookRun{hook: hook, task: task, argv: argv, env: env, alone: i.adopted}, nil
}

// run runs the hook until it exits, and kills it after its timeout or when ctx ends. It returns nil if the hook exited
// with 0. The hook's output goes to the program's log.
func (h hookRun) run(ctx context.Context) error {
	limit := orElse(asDuration(h.hook.Timeout), hookTimeout)
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	note := func(text string) error { return h.task.Note(ctx, text) }
	out := &hookLog{name: h.hook.Name, note: note, left: hookOutput}
	complaints := &hookLog{name: h.hook.Name, note: note, left: hookOutput}
	code, err := h.task.Exec(timed,
		driver.Command{Argv: h.argv, Env: h.env, Stdout: out, Stderr: complaints, Alone: h.alone})
	out.finish()
	complaints.finish()
	switch {
	case errors.Is(timed.Err(), context.DeadlineExceeded) && ctx.Err() == nil:
		return fmt.Errorf("it took longer than %s and was killed", model.Duration(limit.Milliseconds()))
	case err != nil:
		return err
	case code != 0:
		return exitError(code, cmp.Or(complaints.last, out.last))
	}
	return nil
}

// hookLog writes one output of a hook, stdout or stderr, to the program's log. Each line begins with the hook's name.
// One goroutine uses it.
type hookLog struct {
	name    model.HookName
	note    func(text string) error
	left    int // bytes of output that may still be written
	partial []byte
	last    string // the last line that isn't empty
	broken  bool   // a write to the log failed
}

// lineLimit is how many bytes of a line are kept. It is small, so that several lines fit in one note.
const lineLimit = 1000

func (l *hookLog) Write(b []byte) (int, error) {
	var text strings.Builder
	rest := b
	for {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		l.partial = append(l.partial, line[:min(len(line), lineLimit-min(lineLimit, len(l.partial)))]...)
		if !whole {
			break
		}
		l.line(&text)
		if text.Len() > driver.NoteLimit-2*lineLimit {
			l.flush(&text)
		}
		rest = after
	}
	l.flush(&text)
	return len(b), nil
}

// line completes the current line and appends it to text, unless the limit of the output is reached.
func (l *hookLog) line(text *strings.Builder) {
	line := strings.ToValidUTF8(string(l.partial), "?")
	l.partial = l.partial[:0]
	if strings.TrimSpace(line) != "" {
		l.last = line
	}
	if l.left -= len(line) + 1; l.left > 0 {
		fmt.Fprintf(text, "hook %s: %s\n", l.name, line)
	}
}

func (l *hookLog) flush(text *strings.Builder) {
	if text.Len() == 0 || l.broken {
		return
	}
	// If the write fails, only this output is lost. It fails on a full disk, or with a shim of an older release.
	l.broken = l.note(text.String()) != nil
	text.Reset()
}

// finish writes the last line, if it has no line end.
func (l *hookLog) finish() {
	if len(l.partial) > 0 {
		var text strings.Builder
		l.line(&text)
		l.flush(&text)
	}
}

// prepare runs the before_stop hook, if there is one, and then checks the instance's own gates again. A failed hook
// ends the preparation, unless its on_failure is continue. The program serves meanwhile. If ctx ends, prepare returns
// early, and the caller drops the result.
func (i *instance) prepare(ctx context.Context, task Task, want transport.Assignment, ask asker) model.HookResult {
	result := model.HookResult{Seq: want.Prepare}
	hook, has := hookOf(want, model.HookBeforeStop)
	if has {
		run, err := i.newHookRun(task, want, hook)
		if err == nil {
			err = run.run(ctx)
		}
		if err != nil {
			result.Message = hookMessage(hook.Name, err)
			i.log.Warn("hook failed", "hook", hook.Name, "error", err, "on_failure", hook.OnFailure)
			if hook.OnFailure != model.HookContinue {
				return result
			}
		}
	}
	patience := time.Duration(0)
	if has {
		patience = settleGates
	}
	if why := awaitGates(ctx, want.Gates, ask, time.Now().Add(patience)); why != "" {
		result.Message = short(why)
		return result
	}
	result.OK = true
	return result
}

// awaitGates checks the gates again and again until all hold, the deadline is too near for another check, or ctx ends.
// It checks at least once. It returns "" if all gates hold, and otherwise why one does not.
func awaitGates(ctx context.Context, gates []string, ask asker, deadline time.Time) string {
	for {
		why := unmetGate(ctx, gates, ask)
		if why == "" || time.Until(deadline) < gateAgain || !sleep(ctx, gateAgain, nil) {
			return why
		}
	}
}

func hookMessage(name model.HookName, err error) string {
	return short("hook " + string(name) + ": " + message(err))
}

// short cuts text to a length that the servers accept.
func short(text string) string {
	if len(text) > 240 { // servers cut at 256 bytes
		text = strings.ToValidUTF8(text[:240], "") + "..."
	}
	return text
}

// prepared reports whether the outcome of the preparation seq is known.
func (i *instance) prepared(seq uint64) bool {
	h := i.entry.Status.Hook
	return h != nil && h.Seq == seq
}

// conclude reports the outcome of a preparation. The journal has the outcome first, so that no later agent prepares
// again.
func (i *instance) conclude(r model.HookResult) {
	i.log.Info("prepared to stop", "preparation", r.Seq, "ok", r.OK, "message", r.Message)
	s := i.entry.Status
	s.Hook = &r
	i.report(s)
}

// declinePreparation reports that a requested preparation has failed, if the program does not run or can't be reached.
// The servers try again later. It does nothing if the outcome of the preparation is known, the instance is to stop, or
// the instance was never started.
func (i *instance) declinePreparation(want transport.Assignment) {
	unclear := i.isUnclear()
	if want.Prepare == 0 || i.entry.Live && !unclear || want.Desired != model.DesiredRunning ||
		i.entry.Status.Observed == model.ObservedPending || i.prepared(want.Prepare) {
		return
	}
	why := "the program does not run: "
	if unclear {
		why = "the program can't be reached: "
	}
	i.conclude(model.HookResult{Seq: want.Prepare, Message: short(why + i.entry.Status.Reason)})
}

// lastLook checks the instance's own gates once more, right before the stop signal. The program may have changed since
// the servers decided: for example, it may have become the leader of its group. While a gate does not hold, the signal
// is delayed until a second of the grace is left (for a grace below two seconds, half of it). Then the servers'
// decision stands. lastLook returns how much of the grace was used. It returns 0 without a delay if there is nothing to
// check, and stops waiting with 0 if the program ends or must be killed, or if ctx ends.
func (i *instance) lastLook(ctx context.Context, task Task) time.Duration {
	want := i.wanted()
	if len(want.Gates) == 0 || want.Desired != model.DesiredDraining {
		return 0
	}
	_, grace := i.shared.stopPolicy(want)
	most := max(grace-lastGrace, grace/2)
	ask := newAsker(i.shared.values(want), want, task.Exec)
	began := time.Now()
	look := send(ctx, func(ctx context.Context) string {
		ctx, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		return awaitGates(ctx, want.Gates, ask, began.Add(most))
	})
	defer look.stop()
	for {
		select {
		case why := <-look.result():
			spent := time.Since(began)
			switch {
			case why != "":
				i.log.Warn("stop begins although a gate does not hold: the servers' decision stands", "gate", why, "waited", spent)
			case spent >= gateAgain:
				i.log.Info("stop was held back until the gates held", "waited", spent)
			}
			return spent
		case <-i.changed:
			if i.wanted().Desired == model.DesiredStopped {
				return 0
			}
		case <-task.Done():
			return 0
		case <-ctx.Done():
			return 0
		}
	}
}
