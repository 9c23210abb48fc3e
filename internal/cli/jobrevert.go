package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

func jobRevert(a *app) *cobra.Command {
	var change changeFlags
	var body api.RevertBody
	cmd := &cobra.Command{
		Use: "revert JOB [VERSION]", Short: "make an earlier version the wanted state again", Args: term.Between(1, 2),
		ValidArgsFunction: a.complete("jobs"),
		Long: `Shows the plan, submits the spec of an earlier version again as a new version, and follows that. Without VERSION it goes to the newest one that
completed its rollout and differs from the current one in more than counts; versions that a revert has left are passed over. Where the current version is a
revert already, VERSION must be named. Every group keeps the count that it has now; where that can't be, a note says so.`,
		Example: "outspan job revert web --dry-run\noutspan job revert web 3 -m 'the new one leaks'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				v, err := strconv.ParseUint(strings.TrimPrefix(args[1], "v"), 10, 64)
				if err != nil || v == 0 {
					return term.Usage("%q is not a version of a job", args[1]).
						WithHint("list them with: outspan job history %s", args[0])
				}
				body.Version = v
			}
			return a.revertJob(cmd.Context(), args[0], body, &change)
		},
	}
	change.register(cmd, "check and show what would change, change nothing")
	cmd.Flags().StringVarP(&body.Message, "message", "m", "", "why, for people; stands in the history")
	cmd.Flags().Uint64Var(&body.IfVersion, "if-version", 0, "only if this is the current version")
	cmd.Flags().BoolVar(&body.Counts, "counts", false, "take the counts of that version too")
	return cmd
}

// plannedRevert is the JSON of job revert --dry-run.
type plannedRevert struct {
	api.RevertReply
	Plan *jobPlanned `json:"plan"`
}

func (a *app) revertJob(ctx context.Context, job string, body api.RevertBody, change *changeFlags) error {
	follows, err := change.follows()
	if err != nil {
		return err
	}
	tried, err := a.client().Jobs.Revert(ctx, job, body, client.WriteOptions{DryRun: true})
	var planned *jobPlanned
	if err == nil && tried.Value.Spec != nil {
		planned, err = a.plan(ctx, *tried.Value.Spec, false)
	}
	if change.write.dryRun {
		if err != nil {
			return err
		}
		return a.showRevertPlan(plannedRevert{tried.Value, planned}, change)
	}
	// With --request-id, go on although the dry run failed: if an earlier call with that id did the revert, the call below
	// returns its outcome.
	if err != nil && change.write.requestID == "" {
		return err
	}
	got, err := a.client().Jobs.Revert(ctx, job, body, change.write.options())
	if err != nil {
		return err
	}
	if planned != nil && !a.Output.Machine() {
		if err := a.showPlan(planned); err != nil {
			return err
		}
	}
	if got.Value.Note != "" {
		a.Note("%s", got.Value.Note)
	}
	done, plain := revertedTo(&got.Value.JobReply),
		client.Response[api.JobReply]{Value: got.Value.JobReply, Raw: got.Raw, Index: got.Index}
	if !follows || got.Value.Job == nil {
		return a.showJobReply(plain, done, change)
	}
	return a.followJob(ctx, plain, done, change)
}

func revertedTo(r *api.JobReply) string {
	if r.RevertedTo == 0 {
		return "is reverted"
	}
	return "is reverted to version " + strconv.FormatUint(r.RevertedTo, 10)
}

func (a *app) showRevertPlan(tried plannedRevert, change *changeFlags) error {
	name := ""
	if tried.Job != nil {
		name = jobName(*tried.Job)
	}
	s, err := term.ResultOf(tried, []string{name}, func(p *term.Page) {
		if tried.Plan != nil {
			planPage(p, tried.Plan)
		}
		jobReplyPage(p, &tried.JobReply, revertedTo(&tried.JobReply), &change.write)
		if tried.Note != "" {
			p.Line("%s", tried.Note)
		}
	})
	if err != nil {
		return err
	}
	if err := a.Show(s); err != nil || tried.Plan == nil {
		return err
	}
	return tried.Plan.unplacedError(true)
}

// rolloutOf returns the deployment of a job's current version if the deployment is queued, is rolling or has failed. It
// returns nil for any other deployment, if the job is stopped or stopping, or if the deployment can't be read.
func (a *app) rolloutOf(ctx context.Context, job *api.Job) *api.Deployment {
	if job.DeploymentID == "" || job.Status == api.JobStopped || job.Status == api.JobStopping {
		return nil
	}
	got, err := a.client().Deployments.Get(ctx, string(job.DeploymentID), client.ReadOptions{})
	d := &got.Value
	if err != nil || d.Status == model.DeploymentSucceeded || d.Status == model.DeploymentSuperseded {
		return nil
	}
	return d
}

// rolloutText describes a deployment that has failed or is failing. For any other deployment it returns "". The
// deployment is failing if trouble, a result of troubleOf, is not "".
func rolloutText(d *api.Deployment, trouble string) string {
	switch {
	case d.Status == model.DeploymentFailed:
		return string(d.ID) + " failed: " + d.Reason
	case trouble != "":
		return string(d.ID) + " is failing"
	}
	return ""
}
