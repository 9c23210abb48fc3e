package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// logFlags select the instances and the lines of their logs.
type logFlags struct {
	follow         bool
	tail           int
	stdout, stderr bool
	times          bool
	since          string
	running        bool // show only instances that still run
}

// logsKept is help text about how long logs are kept. Spec.withDefaults in agent/driver/spec.go and keepEnded in
// agent/supervisors.go set the values.
const logsKept = "Of each stream the newest 20 to 30 MiB are kept. Once the servers have forgotten an ended " +
	"instance, its\nlogs stay among the newest 32 such of the node, for up to 24 hours."

// forJobs adds the flags of commands that read the logs of several instances.
func (f *logFlags) forJobs(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.running, "running", false, "leave out instances that have ended")
}

func (f *logFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVarP(&f.follow, "follow", "f", false, "go on as more comes")
	fs.IntVar(&f.tail, "tail", -1,
		"begin with this many of the last lines of each stream of each instance (default: all that is kept)")
	fs.BoolVar(&f.stdout, "stdout", false, "only standard output")
	fs.BoolVar(&f.stderr, "stderr", false, "only standard error")
	fs.BoolVarP(&f.times, "timestamps", "t", false, "put the time at which it was written before each line")
	fs.StringVar(&f.since, "since", "",
		"leave out older lines: a duration such as 10m, or a time such as 2026-01-31T12:00:00Z")
}

func (f *logFlags) options() (client.LogOptions, error) {
	o := client.LogOptions{Follow: f.follow, Timestamps: f.times, Since: f.since}
	switch {
	case f.stdout && f.stderr:
		return o, term.Usage("--stdout and --stderr are both given").WithHint("give neither for both")
	case f.stdout:
		o.Stream = client.Stdout
	case f.stderr:
		o.Stream = client.Stderr
	}
	if f.tail < -1 {
		return o, term.Usage("--tail is %d", f.tail).WithHint("give a number of lines, or leave it out for all that is kept")
	}
	if f.tail >= 0 {
		o.Tail = &f.tail
	}
	return o, nil
}

func instanceLogs(a *app) *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use: "logs INSTANCE", Short: "show the output of an instance", Args: term.Exactly("INSTANCE"),
		ValidArgsFunction: a.complete("instances"),
		Long:              "Shows what the program wrote, through any server.\n" + logsKept,
		Example:           "outspan instance logs 3k9f -f\noutspan instance logs 3k9f --stderr --tail 100",
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			return a.instanceLogs(cmd.Context(), args[0], o)
		},
	}
	f.register(cmd)
	return cmd
}

// instanceLogs shows the log of one instance. If o.Follow is true and the instance has no log yet because it has not
// started, instanceLogs waits for the start.
func (a *app) instanceLogs(ctx context.Context, id string, o client.LogOptions) error {
	for {
		err := a.copyLogs(ctx, o, func(o client.LogOptions) (io.ReadCloser, error) {
			return a.client().Instances.Logs(ctx, id, client.InstanceLogOptions{LogOptions: o})
		})
		if !isCode(err, model.CodeNotFound) || !o.Follow {
			return err
		}
		i, failed := a.client().Instances.Get(ctx, id, client.ReadOptions{})
		switch {
		case failed != nil:
			return failed
		case i.Value.Observed != model.ObservedPending && i.Value.Observed != model.ObservedBooting:
			return err
		case !wait(ctx, 500*time.Millisecond):
			return context.Cause(ctx)
		}
	}
}

func jobLogs(a *app) *cobra.Command {
	var f logFlags
	var group string
	cmd := &cobra.Command{
		Use: "logs JOB", Short: "show the output of every instance of a job", Args: term.Exactly("JOB"),
		ValidArgsFunction: a.complete("jobs"),
		Long: "Shows the output of every instance of a job, each line with the group, slot and id it is of. With -f it " +
			"also takes up instances that start later. At most 100 instances are read at a time: the lines of others " +
			"come after theirs, with -f once one of them has ended.\n" + logsKept,
		RunE: func(cmd *cobra.Command, args []string) error { return a.jobLogs(cmd.Context(), args[0], group, &f) },
	}
	f.register(cmd)
	f.forJobs(cmd)
	cmd.Flags().StringVar(&group, "group", "", "only of this group")
	return cmd
}

func (a *app) jobLogs(ctx context.Context, job, group string, f *logFlags) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	return a.copyLogs(ctx, o, func(o client.LogOptions) (io.ReadCloser, error) {
		return a.client().Jobs.Logs(ctx, job, client.JobLogOptions{LogOptions: o, Group: group, Running: f.running})
	})
}

// logsCommand makes the command logs, which shows the logs of the job, group or instance that its argument names.
func logsCommand(a *app) *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use: "logs JOB|JOB/GROUP|INSTANCE", Short: "show the output of a job, a group or an instance",
		Args: term.Exactly("ID"), ValidArgsFunction: a.complete("logs"),
		Long: "Shows the output of an instance, or of every instance of a job or a group.\n" + logsKept,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			var kind, id string
			// Showing logs needs no leader, so finding the object must not need one either.
			err := orStale(a, "", func(fresh client.Consistency) (err error) {
				kind, id, err = a.kindOf(ctx, args[0], fresh)
				return err
			})
			if err != nil {
				return err
			}
			switch kind {
			case "job":
				return a.jobLogs(ctx, id, "", &f)
			case "group":
				job, group, _ := strings.Cut(id, "/")
				return a.jobLogs(ctx, job, group, &f)
			case "instance":
				if f.running {
					return term.Usage("--running is for the logs of a job or a group").WithHint("write: outspan logs JOB --running")
				}
				o, err := f.options()
				if err != nil {
					return err
				}
				return a.instanceLogs(ctx, id, o)
			}
			return model.Refuse(model.CodeInvalid, "%s %s has no logs", kind, id).WithHint("jobs and instances have")
		},
	}
	f.register(cmd)
	f.forJobs(cmd)
	return cmd
}

// copyLogs writes a log to stdout as it arrives. For a terminal, it replaces control characters. If the log breaks off
// because the caller may not read it any more, copyLogs returns that refusal.
func (a *app) copyLogs(ctx context.Context, o client.LogOptions,
	open func(client.LogOptions) (io.ReadCloser, error)) error {
	body, err := open(o)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(a.Printable(), body)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && !errors.Is(err, io.EOF):
		none := 0
		o.Follow, o.Tail = false, &none
		if again, refusal := open(o); refusal == nil {
			_ = again.Close() // nothing was read
		} else if isCode(refusal, model.CodeUnauthenticated) || isCode(refusal, model.CodeForbidden) ||
			isCode(refusal, model.CodeNotFound) {
			return refusal
		}
		return model.Refuse(model.CodeUnreachable, "the log broke off: %v", err).WithHint("start it again")
	}
	return nil
}
