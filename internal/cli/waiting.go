package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// waitFlags are the flags --wait[=STATE] and --timeout.
type waitFlags struct {
	state   string
	timeout time.Duration
}

// register adds both flags. --wait accepts the parameter state, which is its default, and each string in also.
func (f *waitFlags) register(cmd *cobra.Command, state string, also ...string) {
	help := "wait until it is " + state
	also = slices.DeleteFunc(slices.Clone(also), func(one string) bool { return one == state })
	if len(also) > 0 {
		help = fmt.Sprintf("wait until it is in a STATE: %s (default), %s", state, term.Joined(also))
	}
	cmd.Flags().Var(&stateValue{state: &f.state, known: append([]string{state}, also...)}, "wait", help)
	cmd.Flags().Lookup("wait").NoOptDefVal = state
	// no error is possible: the flag exists
	_ = cmd.RegisterFlagCompletionFunc("wait", completeWords(append([]string{state}, also...)...))
	f.registerTimeout(cmd)
}

func (f *waitFlags) registerTimeout(cmd *cobra.Command) {
	cmd.Flags().
		DurationVar(&f.timeout, "timeout", 0,
			"with waiting: how long (exit code 23 when it is over; the work goes on); 0: no limit")
}

// limit returns a context that expires after --timeout, or never if the timeout is 0. When it expires, context.Cause
// returns an error about the object that the parameter what names, such as "job web".
func (f *waitFlags) limit(ctx context.Context, what string) (context.Context, context.CancelFunc) {
	if f.timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, f.timeout,
		model.Refuse(codeWaitTimedOut, "%s did not get there within %s", what, f.timeout).
			WithHint("%s", goesOn(what)))
}

// goesOn returns the hint for the error of a wait that timed out. The parameter what names the object, such as "job
// web".
func goesOn(what string) string {
	hint := "the work goes on; wait longer with --timeout"
	switch kind, id, _ := strings.Cut(what, " "); kind {
	case "job", "drain", "node", "instance":
		hint += ", or see: outspan why " + id
	}
	return hint
}

// stateValue is a flag that takes one of a few states.
type stateValue struct {
	state *string
	known []string
}

// String implements pflag.Value.
func (v *stateValue) String() string {
	if v.state == nil {
		return ""
	}
	return *v.state
}

// Set implements pflag.Value.
func (v *stateValue) Set(text string) error {
	if !slices.Contains(v.known, text) {
		return fmt.Errorf("there is no state %q to wait for: use %s", text, strings.Join(v.known, ", "))
	}
	*v.state = text
	return nil
}

// Type implements pflag.Value.
func (v *stateValue) Type() string { return "STATE" }

// waiting describes an object, and how to wait until it has a state.
type waiting[T any] struct {
	what string // the object in messages, such as "job web"
	read reader[T]
	// state returns the object's state. The wait succeeds if the state is the value of --wait, or if done returns true.
	// done is for values of --wait that are not the name of one state. It may be nil.
	state func(T) string
	done  func(T) bool
	// over returns an error if the object can no longer reach the wanted state. It may be nil.
	over func(T) error
	// is, which may be nil, reports whether a read returned the wanted object. The servers also accept a prefix of a name,
	// so a read may return another object.
	is func(T) bool
	// If absent is true, the object need not exist yet: the wait includes the time until it exists.
	absent bool
}

// waitUntil waits until an object has the state that --wait names. Without --wait it returns at once. It returns an
// error if --timeout expires, or if the object can no longer reach the state. Unless w.absent is true, an object that
// does not exist is an error too.
func waitUntil[T any](ctx context.Context, a *app, until *waitFlags, w waiting[T]) error {
	if until.state == "" {
		return nil
	}
	ctx, cancel := until.limit(ctx, w.what)
	defer cancel()
	last := "not heard of"
	look := func(got client.Response[T]) (bool, error) {
		if w.is != nil && !w.is(got.Value) {
			return false, model.Refuse(model.CodeNotFound, "there is no %s", w.what)
		}
		last = w.state(got.Value)
		if last == until.state || w.done != nil && w.done(got.Value) {
			return true, nil
		}
		if w.over == nil {
			return false, nil
		}
		return false, w.over(got.Value)
	}
	err := watchEvery(ctx, a, w.read, time.Second, look)
	for told := false; w.absent && isCode(err, model.CodeNotFound); err = watchEvery(ctx, a, w.read, time.Second, look) {
		if !told {
			a.Note("%s is not known yet, waiting for it", w.what)
			told, last = true, "not known"
		}
		if !wait(ctx, 200*time.Millisecond) {
			err = context.Cause(ctx)
			break
		}
	}
	if isCode(err, codeWaitTimedOut) {
		return model.Refuse(codeWaitTimedOut, "%s is %s, not %s, after %s", w.what, last, until.state, until.timeout).
			WithHint("%s", goesOn(w.what))
	}
	return err
}

// statusVerb is a command that shows one object. With --wait it first waits for a state.
type statusVerb struct {
	of, short, example string
	kind               string   // kind of object, for shell completion
	states             []string // states that --wait accepts; the first is the default
	wait               func(context.Context, string, *waitFlags) error
	show               func(context.Context, string) error
}

func (v statusVerb) command(a *app) *cobra.Command {
	var until waitFlags
	cmd := &cobra.Command{
		Use: "status " + v.of, Short: v.short, Example: v.example, Args: term.Exactly(v.of),
		ValidArgsFunction: a.complete(v.kind),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := v.wait(cmd.Context(), args[0], &until); err != nil {
				return err
			}
			return v.show(cmd.Context(), args[0])
		},
	}
	until.register(cmd, v.states[0], v.states...)
	return cmd
}

// nodeStates returns the values of --wait for a node: the states of a node, "eligible", and "drained", which a node is
// while it is draining and its drain has moved everything away.
func nodeStates() []string {
	return []string{
		"active", "eligible", "cordoned", "draining", "drained", "disabled", "degraded", "unreachable", "offline",
	}
}

func (a *app) waitForNode(ctx context.Context, ref string, until *waitFlags) error {
	return waitUntil(ctx, a, until, waiting[api.Node]{
		what: "node " + ref, read: of(a.client().Nodes.Get, ref), absent: true,
		state: func(n api.Node) string { return string(n.State) },
		done: func(n api.Node) bool {
			return until.state == "eligible" && n.Eligible || until.state == "drained" && n.DrainPhase == model.PhaseDrained
		},
	})
}

func (a *app) waitForInstance(ctx context.Context, id string, until *waitFlags) error {
	err := waitUntil(ctx, a, until, waiting[api.Instance]{
		what: "instance " + id, read: of(a.client().Instances.Get, id),
		state: func(i api.Instance) string { return string(i.Observed) },
		over: func(i api.Instance) error {
			if i.Observed != model.ObservedStopped {
				return nil
			}
			return model.Refuse(model.CodeConflict, "instance %s is stopped, and never runs again", id).
				WithHint("see what replaced it: outspan why %s", id)
		},
	})
	if until.state == string(model.ObservedStopped) && isCode(err, model.CodeNotFound) {
		return nil // the row of a stopped instance is removed after a while
	}
	return err
}

// waitForRestart waits until an instance has the state that --wait names. The parameter before is an earlier read of
// the instance. The state ready is accepted only if the instance was restarted after that read.
func (a *app) waitForRestart(ctx context.Context, before *api.Instance, until *waitFlags) error {
	return waitUntil(ctx, a, until, waiting[api.Instance]{
		what: "instance " + instanceID(*before), read: of(a.client().Instances.Get, instanceID(*before)),
		state: func(i api.Instance) string {
			if i.Restarts <= before.Restarts && i.Observed == model.ObservedReady {
				return "not restarted yet"
			}
			return string(i.Observed)
		},
		over: func(i api.Instance) error {
			again := i.Observed == model.ObservedFailed && i.Restarts > before.Restarts
			if i.Observed != model.ObservedStopped && !again {
				return nil
			}
			return model.Refuse(model.CodeConflict, "instance %s is %s", i.ID, i.Observed).WithHint("see: outspan why %s", i.ID)
		},
	})
}

// waitForJob waits until a job has the status that --wait names. For --wait=ready it waits until the job runs and no
// group has more instances than its count.
func (a *app) waitForJob(ctx context.Context, name string, until *waitFlags) error {
	err := waitUntil(ctx, a, until, waiting[api.JobDetail]{
		what: "job " + name, read: of(a.client().Jobs.Get, name),
		is:    func(j api.JobDetail) bool { return string(j.Name) == name },
		state: func(j api.JobDetail) string { return string(j.Status) },
		done: func(j api.JobDetail) bool {
			return until.state == "ready" && j.Status == api.JobRunning && settled(&j.Job)
		},
		over: func(j api.JobDetail) error {
			if j.Status != api.JobStopped {
				return nil
			}
			return model.Refuse(model.CodeConflict, "job %s is stopped", name).
				WithHint("run it again with: outspan job run FILE")
		},
	})
	if until.state == string(api.JobStopped) && isCode(err, model.CodeNotFound) {
		return nil // the job was purged
	}
	return err
}

func (a *app) waitForDrain(ctx context.Context, id string, until *waitFlags) error {
	return waitUntil(ctx, a, until, waiting[api.Drain]{
		what: "drain " + id, read: of(a.client().Drains.Get, id),
		state: func(d api.Drain) string { return string(d.Phase) },
		done:  func(d api.Drain) bool { return until.state == "ended" && d.Phase != model.PhaseDraining },
		over:  drainEnded,
	})
}

func (a *app) waitForDeployment(ctx context.Context, id string, until *waitFlags) error {
	return waitUntil(ctx, a, until, waiting[api.Deployment]{
		what: "deployment " + id, read: of(a.client().Deployments.Get, id),
		state: func(d api.Deployment) string { return string(d.Status) },
		done:  func(d api.Deployment) bool { return until.state == "ended" && d.Status.Ended() },
		over: func(d api.Deployment) error {
			switch {
			case !d.Status.Ended():
				return nil
			case d.Status == model.DeploymentFailed:
				return deploymentFailed(&d)
			}
			return model.Refuse(model.CodeConflict, "deployment %s is %s", id, d.Status).
				WithHint("see: outspan deployment ls --job %s", d.Job)
		},
	})
}
