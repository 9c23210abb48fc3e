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
	// settleGates is how long the gates of an instance may take to hold after its hook. For example, a leader that has
	// resigned needs a moment to become a follower. The servers allow a preparation ten seconds more than the hook's
	// timeout.
	settleGates = 5 * time.Second
	// gateAgain is the pause between two checks of gates that don't hold.
	gateAgain = time.Second
	// lastGrace is how much of the grace the program still has at the stop signal, however long its gates delay the
	// signal. If the grace is below two seconds, the program has half of it.
	lastGrace = time.Second
	// hookOutput is how many bytes of each output of a hook, stdout and stderr, are written to the instance's log.
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
	alone bool // an earlier agent may have left this hook running, so it is killed first
}

// newHookRun returns a run of the hook beside the program of task. Code: invalid (the hook's command has an unknown
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

// run runs the hook, and returns nil if the hook exited with 0. It kills the hook after its timeout or when ctx ends.
// The hook's output is written to the program's log.
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
// It is not safe for concurrent use.
type hookLog struct {
	name    model.HookName
	note    func(text string) error
	left    int    // bytes of output that may still be written
	partial []byte // the current line so far, at most lineLimit bytes
	last    string // the last line that isn't empty
	broken  bool   // a write to the log failed
}

// lineLimit is how many bytes of a line are written. It is low, so that several lines fit in one note.
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

// line appends the current line to text, unless the limit of the output is reached, and begins the next line.
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
	// After a failure, all further output of the hook is dropped. A write fails while the disk does not answer, or always
	// with a shim of an older release.
	l.broken = l.note(text.String()) != nil
	text.Reset()
}

// finish writes the last line if it has no line end.
func (l *hookLog) finish() {
	if len(l.partial) > 0 {
		var text strings.Builder
		l.line(&text)
		l.flush(&text)
	}
}

// prepare runs the before_stop hook, if the group has one, and then checks the instance's own gates again, while the
// program still serves. If the hook fails and its on_failure is not continue, the preparation has failed. If ctx ends,
// prepare returns early with a result that must not be used.
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

// awaitGates checks the gates repeatedly until all hold, the deadline is too near for another check, or ctx ends. It
// checks at least once. It returns "" if all gates hold, and otherwise why one of them does not hold.
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

// short cuts text to less than the limit of the servers, and marks the cut with dots.
func short(text string) string {
	if len(text) > 240 { // the servers cut the message of a preparation at 400 bytes
		text = strings.ToValidUTF8(text[:240], "") + "..."
	}
	return text
}

// prepared reports whether the outcome of the preparation with the number seq is known.
func (i *instance) prepared(seq uint64) bool {
	h := i.entry.Status.Hook
	return h != nil && h.Seq == seq
}

// conclude reports the outcome of a preparation. It first writes the outcome to the journal, so that no later agent
// repeats the preparation.
func (i *instance) conclude(r model.HookResult) {
	i.log.Info("prepared to stop", "preparation", r.Seq, "ok", r.OK, "message", r.Message)
	s := i.entry.Status
	s.Hook = &r
	i.report(s)
}

// declinePreparation reports that a requested preparation has failed if the program does not run or can't be reached.
// The servers try again later. It does nothing if the outcome of the preparation is known, if the servers want the
// instance to stop, or if the instance was never started.
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

// lastLook checks the instance's own gates once more, right before the stop signal, because the program may have become
// the leader of its group since the servers decided. It blocks until the gates hold, or until only lastGrace of the
// grace is left. In both cases the stop begins. It returns how much of the grace it used. It returns 0 if there is
// nothing to check, the program ends, the servers want it stopped at once, or ctx ends.
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
