package cli

import (
	"cmp"
	"context"
	"errors"
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

// changeFlags are the flags of commands that change a job and follow the change.
type changeFlags struct {
	write  writeFlags
	until  waitFlags
	detach bool
}

func (f *changeFlags) register(cmd *cobra.Command, dryRun string) {
	f.write.register(cmd, dryRun)
	f.until.register(cmd, "succeeded", "submitted")
	cmd.Flags().
		BoolVar(&f.detach, "detach", false,
			"return once it is accepted, instead of following it (the same as --wait=submitted)")
}

// follows reports whether the command follows the change until it is complete or has failed. It refuses a --wait state
// other than succeeded and submitted.
func (f *changeFlags) follows() (bool, error) {
	switch f.until.state {
	case "", "succeeded":
		return !f.detach && !f.write.dryRun, nil
	case "submitted":
		return false, nil
	}
	return false, term.Usage("--wait=%s: a job has no such state to wait for", f.until.state).
		WithHint("use succeeded or submitted")
}

func jobRun(a *app) *cobra.Command {
	var change changeFlags
	var message, ifIndex string
	var keepImages bool
	cmd := &cobra.Command{
		Use: "run FILE", Short: "make a job file the wanted state, and follow that", Args: term.Exactly("FILE"),
		Long: `Submits a job file ("-" reads standard input) and follows until every instance of it is ready.

Exit codes: 0 all ready; 2 the file is invalid; 21 not all can be placed; 22 the deployment failed; 23 --timeout.`,
		Example: "outspan job run web.hcl\noutspan job run web.hcl --detach\n" +
			"outspan job run web.hcl --if-index 42 -m 'more memory'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runJob(cmd.Context(), args[0], message, ifIndex, keepImages, &change)
		},
	}
	cmd.Flags().BoolVar(&keepImages, "keep-images", false, keepImagesText)
	change.register(cmd, "check and show what would change, change nothing")
	cmd.Flags().StringVarP(&message, "message", "m", "", "why, for people; stands in the history")
	cmd.Flags().
		StringVar(&ifIndex, "if-index", "",
			"only if the job is still at this index, which job plan shows (0: only if it does not exist)")
	return cmd
}

func (a *app) runJob(ctx context.Context, file, message, ifIndex string, keepImages bool, change *changeFlags) error {
	follows, err := change.follows()
	if err != nil {
		return err
	}
	index, err := parseIndex(ifIndex)
	if err != nil {
		return err
	}
	spec, err := a.readJob(file)
	if err != nil {
		return err
	}
	planned, err := a.plan(ctx, spec, keepImages)
	if err != nil {
		return err
	}
	if change.write.dryRun {
		return cmp.Or(a.showPlan(planned), planned.unplacedError(planned.Index > 0))
	}
	submitted := spec
	if change.write.requestID == "" { // what was planned; a repeated request must have the same body
		submitted = pinned(spec, planned.Images)
	}
	o := client.ChangeOptions{WriteOptions: change.write.options(), IfIndex: index}
	got, err := a.client().Jobs.Submit(ctx, api.SubmitBody{Job: submitted, Message: message}, o)
	if err != nil {
		return err
	}
	if !a.Output.Machine() {
		if err := a.showPlan(planned); err != nil {
			return err
		}
	}
	if !follows {
		return cmp.Or(a.showJobReply(got, "is submitted", change), planned.unplacedError(true))
	}
	if r := &got.Value; r.Job != nil && !r.Changed {
		r.DeploymentID = a.unfinished(ctx, r.Job)
	}
	return a.followJob(ctx, got, "is submitted", change)
}

// unfinished returns the id of the deployment of a job's current version if there is something left to follow: the
// deployment has not succeeded, and old instances still run or new ones are not ready. Otherwise it returns "". With
// that id, a user who interrupted job run can submit the same file again and continue to wait. The id of a superseded
// deployment is returned too: the job was changed or stopped since the submit, and followJob must report that.
func (a *app) unfinished(ctx context.Context, job *api.Job) model.DeploymentID {
	id := model.NewDeploymentID(job.Name, job.Version)
	d, err := a.client().Deployments.Get(ctx, string(id), client.ReadOptions{})
	if err != nil {
		return "" // the deployment no longer exists; following the job reports any other error
	}
	left := slices.ContainsFunc(d.Value.Groups, func(g api.DeploymentGroup) bool { return g.Old > 0 || g.Ready < g.Count })
	if left && d.Value.Status != model.DeploymentSucceeded {
		return id
	}
	return ""
}

type jobWrite func(context.Context, client.WriteOptions) (client.Response[api.JobReply], error)

// changeJob changes a job by calling do, and follows the change unless the flags say otherwise. The parameter done
// describes the change for people, such as "is scaled to 5".
func (a *app) changeJob(ctx context.Context, done string, change *changeFlags, do jobWrite) error {
	follows, err := change.follows()
	if err != nil {
		return err
	}
	got, err := do(ctx, change.write.options())
	if err != nil {
		return err
	}
	if !follows || got.Value.Job == nil {
		return a.showJobReply(got, done, change)
	}
	return a.followJob(ctx, got, done, change)
}

func (a *app) showJobReply(got client.Response[api.JobReply], done string, change *changeFlags) error {
	r := got.Value
	name := ""
	if r.Job != nil {
		name = jobName(*r.Job)
	}
	return a.Show(term.Result{JSON: got.Raw, Names: []string{name}, Text: func(p *term.Page) {
		jobReplyPage(p, &r, done, &change.write)
	}})
}

// jobReplyPage describes what a write did to a job. For a dry run it describes what the write would do.
func jobReplyPage(p *term.Page, r *api.JobReply, done string, write *writeFlags) {
	if r.Job == nil {
		return
	}
	if !r.Changed && !r.Replayed {
		p.Line("job %s is so already: nothing was changed", r.Job.Name)
		return
	}
	if write.dryRun {
		done = "would be " + strings.TrimPrefix(done, "is ")
	}
	p.Line("job %s %s, version %d %s", r.Job.Name, done, r.Job.Version, write.done(r.Index))
}

// jobResult is the JSON of a change that was followed: the reply to the write, and the job and its deployment as they
// were at the end.
type jobResult struct {
	api.JobReply
	Deployment *api.Deployment `json:"deployment,omitempty"`
}

// followJob shows how a job changes to its new state, until watchJob returns. Output for a program is printed once, at
// the end.
func (a *app) followJob(ctx context.Context, got client.Response[api.JobReply], done string,
	change *changeFlags) error {
	r := got.Value
	name := jobName(*r.Job)
	if a.Output.Machine() {
		end, failed := a.watchJob(ctx, name, r, &change.until, a.Note, func(jobLook) {})
		s, err := term.ResultOf(jobResult{end.reply(r), end.deployment}, []string{name}, nil)
		if err != nil {
			return err
		}
		return cmp.Or(a.Show(s), failed)
	}
	if err := a.showJobReply(got, done, change); err != nil {
		return err
	}
	p := term.NewProgress(&a.Console)
	defer p.End()
	_, err := a.watchJob(ctx, name, r, &change.until, p.Line, func(l jobLook) { p.Now("%s", l.text()) })
	return err
}

// jobLook is the state of a followed job at one moment.
type jobLook struct {
	job        *api.Job
	deployment *api.Deployment
	rollout    *api.Deployment // result of rolloutOf, if the change began no deployment
	trouble    string          // result of troubleOf
	stuckSince time.Time       // when the job became stuck; zero if it is not stuck
}

func (l jobLook) reply(r api.JobReply) api.JobReply {
	if l.job != nil {
		r.Job = l.job
	}
	return r
}

func (l jobLook) text() string {
	if l.job == nil {
		return ""
	}
	text := fmt.Sprintf("job %s: %s ready", l.job.Name, readyText(l.job.Groups))
	if l.deployment != nil {
		for _, g := range l.deployment.Groups {
			if g.Old > 0 {
				text += fmt.Sprintf(", %s: %d of the old version left", g.Name, g.Old)
			}
		}
	}
	if why := pendingText(l.job.Groups); why != "" {
		text += " (" + why + ")"
	}
	if l.trouble != "" {
		text += "; " + l.trouble
	}
	if l.rollout != nil {
		if failing := rolloutText(l.rollout, l.trouble); failing != "" {
			text += "; rollout " + failing
		}
	}
	return text
}

// troubleOf describes the instances that should run, are not ready and have a reason: it gives their number and one of
// the reasons. It returns "" if there are none.
func troubleOf(instances []api.Instance) string {
	n, reason := 0, ""
	for _, i := range instances {
		if i.Desired == model.DesiredRunning && !i.Ready && i.Reason != "" {
			n, reason = n+1, reasonText(i)
			if endedItself(i.Reason) {
				reason += ", see: outspan logs " + string(i.ID)
			}
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d not well: %s", n, reason)
}

// settle is how long a job must be stuck before the command stops following it. Room may become free in that time, for
// example when an instance stops.
const settle = 3 * time.Second

// watchJob follows a job and its deployment until jobLook.ended returns true. It calls say with a line for each change,
// and bar with each state. It returns the state that it read last.
func (a *app) watchJob(ctx context.Context, name string, r api.JobReply, until *waitFlags, say func(string, ...any),
	bar func(jobLook)) (jobLook, error) {
	limited, cancel := until.limit(ctx, "job "+name)
	defer cancel()
	var look jobLook
	last := ""
	tell := func() {
		if text := look.text(); text != last {
			say("%s", text)
			last = text
		}
		bar(look)
	}
	err := watchEvery(limited, a, of(a.client().Jobs.Get, name), time.Second,
		func(got client.Response[api.JobDetail]) (bool, error) {
			look.job = &got.Value.Job
			if r.DeploymentID != "" {
				d, err := a.client().Deployments.Get(limited, string(r.DeploymentID), client.ReadOptions{})
				if err != nil {
					return false, err
				}
				look.deployment = &d.Value
			} else {
				look.rollout = a.rolloutOf(limited, look.job)
			}
			instances, err := a.client().Instances.List(limited, client.InstanceListOptions{Job: name})
			if err != nil {
				return false, err
			}
			look.trouble = troubleOf(instances.Items)
			tell()
			done, err := look.ended(a.Now())
			if d := look.deployment; done && err == nil && d != nil && !d.Status.Ended() {
				say("its canaries are ready; go on with: outspan deployment promote %s", d.ID)
			} else if done && err == nil && d != nil {
				// The deployment may have ended after the job was read, so read the job again.
				now, err := a.client().Jobs.Get(limited, name, client.ReadOptions{})
				if err != nil {
					return false, err
				}
				look.job = &now.Value.Job
				tell()
			}
			return done, err
		})
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		a.Note("\nstopped following; the job goes on")
		a.Note("  see it:          outspan job status %s", name)
		if look.job != nil && look.job.Version > 1 { // version 1 can't be reverted
			a.Note("  take it back:    outspan job revert %s", name)
		} else {
			a.Note("  stop it:         outspan job stop %s", name)
		}
	}
	return look, err
}

// ended reports whether there is nothing left to follow: the change is complete, has failed, was superseded, is stuck,
// or waits for a promotion. The error is the result of the whole command. ended also sets stuckSince.
func (l *jobLook) ended(now time.Time) (bool, error) {
	if d := l.deployment; d != nil {
		switch d.Status {
		case model.DeploymentSucceeded:
			return true, nil
		case model.DeploymentSuperseded:
			return true, model.Refuse(model.CodeConflict, "deployment %s was superseded by a newer version", d.ID)
		case model.DeploymentFailed:
			return true, deploymentFailed(d)
		}
		if !d.Promoted && canariesReady(d) {
			return true, nil
		}
	} else if settled(l.job) {
		return true, nil
	}
	if !stuck(l.job) {
		l.stuckSince = time.Time{}
		return false, nil
	}
	if l.stuckSince.IsZero() {
		l.stuckSince = now
	}
	if now.Sub(l.stuckSince) < settle {
		return false, nil
	}
	missing := unplacedOf{job: string(l.job.Name), there: true, why: pendingText(l.job.Groups)}
	for _, g := range l.job.Groups {
		if g.Pending > 0 {
			missing.count, missing.codes = missing.count+g.Pending, append(missing.codes, model.Code(g.Reason))
		}
	}
	return true, missing.refusal()
}

func deploymentFailed(d *api.Deployment) error {
	return model.Refuse(codeEndedFailed, "deployment %s failed: %s", d.ID, d.Reason).
		WithHint("see: outspan why %s; what its programs wrote: outspan logs %s", d.ID, d.Job)
}

// settled reports whether a job is in the wanted state: it is stopped, or it is running and no group has more instances
// than its count.
func settled(j *api.Job) bool {
	if j.Status == api.JobStopped {
		return true
	}
	surplus := slices.ContainsFunc(j.Groups, func(g api.JobGroup) bool { return g.Placed > g.Count || g.Ready > g.Count })
	return j.Status == api.JobRunning && !surplus
}

// canariesReady reports whether a deployment waits for a promotion: in every group there are canaries, all of them are
// ready, and old instances still run.
func canariesReady(d *api.Deployment) bool {
	for _, g := range d.Groups {
		if g.Current == 0 || g.Ready < g.Current || g.Old == 0 {
			return false
		}
	}
	return true
}

// stuck reports whether instances are missing and none of them can be placed.
func stuck(j *api.Job) bool {
	missing := false
	for _, g := range j.Groups {
		if g.Pending == 0 {
			continue
		}
		if !unschedulable(g.Reason) {
			return false
		}
		missing = true
	}
	return missing
}

// unschedulable reports whether reason says that an instance can't be placed: no node takes the instance, or it has
// failed too often.
func unschedulable(reason string) bool {
	code := model.Code(reason)
	return code.Unplaceable() || code == model.CodeRetryLimit
}
