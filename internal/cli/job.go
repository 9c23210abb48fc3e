package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/local"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/jobfile"
	"github.com/outspan/outspan/model"
)

func jobName(j api.Job) string { return string(j.Name) }

// readJob reads a job file, and prints warnings about values that are probably mistakes.
func (a *app) readJob(path string) (model.JobSpec, error) {
	src, err := local.ReadFile(&a.Console, path, local.MaxJobFile)
	if err != nil {
		return model.JobSpec{}, err
	}
	spec, err := jobfile.Parse(path, src)
	if err != nil {
		return spec, err
	}
	for _, warning := range spec.Warnings() {
		a.Note("warning: %s", warning)
	}
	return spec, nil
}

func groupSum(groups []api.JobGroup, of func(api.JobGroup) int) (n int) {
	for _, g := range groups {
		n += of(g)
	}
	return n
}

func readyText(groups []api.JobGroup) string {
	return fmt.Sprintf("%d/%d", groupSum(groups, func(g api.JobGroup) int {
		return g.Ready
	}), groupSum(groups, func(g api.JobGroup) int { return g.Count }))
}

func pendingText(groups []api.JobGroup) string {
	var reasons []string
	for _, g := range groups {
		if g.Reason != "" {
			reasons = append(reasons, g.Name+": "+g.Reason)
		}
	}
	return strings.Join(reasons, "; ")
}

func jobLs(a *app) *cobra.Command {
	var filter listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list jobs", Args: term.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Jobs.List(cmd.Context(), filter.options())
			if err != nil {
				return err
			}
			return showList(a, got, jobName, []term.Column[api.Job]{
				{Head: "name", Cell: jobName},
				{Head: "status", Cell: func(j api.Job) string { return string(j.Status) }},
				{Head: "version", Cell: func(j api.Job) string { return fmt.Sprint(j.Version) }},
				{Head: "class", Cell: func(j api.Job) string { return string(j.Class) }},
				{Head: "ready", Cell: func(j api.Job) string { return readyText(j.Groups) }},
				{Head: "pending", Cell: func(j api.Job) string { return pendingText(j.Groups) }},
				{Head: "groups", Wide: true, Cell: func(j api.Job) string { return fmt.Sprint(len(j.Groups)) }},
				{Head: "stable version", Wide: true, Cell: func(j api.Job) string { return term.Number(j.Stable) }},
				{Head: "deployment", Wide: true, Cell: func(j api.Job) string { return string(j.DeploymentID) }},
			})
		},
	}
	filter.register(cmd)
	return cmd
}

func jobStatus(a *app) *cobra.Command {
	return statusVerb{
		of: "JOB", short: "show a job, its groups and instances", kind: "jobs",
		example: "outspan job status web\noutspan job status web --wait --timeout 60s",
		states:  []string{"ready", "running", "pending", "starting", "degraded", "stopping", "stopped"},
		wait:    a.waitForJobLike, show: a.showJob,
	}.command(a)
}

// waitForJobLike is like waitForJob, but also accepts a unique prefix of a job's name.
func (a *app) waitForJobLike(ctx context.Context, ref string, until *waitFlags) error {
	if until.state == "" {
		return nil
	}
	job, err := a.client().Jobs.Get(ctx, ref, client.ReadOptions{})
	if err != nil {
		return err
	}
	return a.waitForJob(ctx, string(job.Value.Name), until)
}

func (a *app) showJob(ctx context.Context, ref string) error {
	job, err := a.client().Jobs.Get(ctx, ref, client.ReadOptions{})
	if err != nil {
		return err
	}
	j := job.Value
	instances, rollout := client.List[api.Instance]{}, string(j.DeploymentID)
	if !a.Output.Machine() {
		if d := a.rolloutOf(ctx, &j.Job); d != nil {
			rollout = cmp.Or(rolloutText(d, ""), rollout)
		}
		if instances, err = a.client().Instances.List(ctx, client.InstanceListOptions{Job: string(j.Name)}); err != nil {
			return err
		}
	}
	return a.Show(term.Result{JSON: job.Raw, Names: []string{string(j.Name)}, Text: func(p *term.Page) {
		p.Fields(
			term.Field{"Name", string(j.Name)}, term.Field{"Status", string(j.Status)},
			term.Field{"Version", fmt.Sprint(j.Version)},
			term.Field{"Stable version", term.Number(j.Stable)}, term.Field{"Class", string(j.Class)},
			term.Field{"Deployment", rollout},
		)
		p.Section("Groups")
		groupRows(p, j.Groups)
		avoidTable(p, j.Avoids)
		p.Section("Instances")
		term.Rows(p, sorted(instances, bySlot).Items, a.instanceColumns())
	}})
}

// avoidTable lists the nodes that groups of a job avoid. A node in the list gets new instances of the group only if no
// other node has room.
func avoidTable(p *term.Page, list []api.JobAvoidsNode) {
	if len(list) == 0 {
		return
	}
	p.Section("Avoided nodes")
	term.Rows(p, list, []term.Column[api.JobAvoidsNode]{
		{Head: "group", Cell: func(x api.JobAvoidsNode) string { _, name := x.Group.Split(); return name }},
		{Head: "node", Cell: func(x api.JobAvoidsNode) string { return x.Node }},
		{Head: "until", Cell: func(x api.JobAvoidsNode) string { return term.Stamp(&x.Until) }},
		{Head: "reason", Cell: func(x api.JobAvoidsNode) string { return x.Reason }},
	})
}

func groupRows(p *term.Page, groups []api.JobGroup) {
	term.Rows(p, groups, []term.Column[api.JobGroup]{
		{Head: "group", Cell: func(g api.JobGroup) string { return g.Name }},
		{Head: "role", Cell: func(g api.JobGroup) string { return string(g.Role) }},
		{Head: "count", Cell: func(g api.JobGroup) string { return fmt.Sprint(g.Count) }},
		{Head: "ready", Cell: func(g api.JobGroup) string { return fmt.Sprint(g.Ready) }},
		{Head: "placed", Cell: func(g api.JobGroup) string { return fmt.Sprint(g.Placed) }},
		{Head: "pending", Cell: func(g api.JobGroup) string { return fmt.Sprint(g.Pending) }},
		{Head: "reason", Cell: func(g api.JobGroup) string { return g.Reason }},
	})
}

func jobHistory(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "history JOB", Short: "show the versions of a job, oldest first", Args: term.Exactly("JOB"),
		ValidArgsFunction: a.complete("jobs"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := a.client().Jobs.Versions(cmd.Context(), args[0], client.ListOptions{})
			if err != nil {
				return err
			}
			return showList(a, got, func(v api.JobVersion) string {
				return fmt.Sprint(v.Version)
			}, []term.Column[api.JobVersion]{
				{Head: "version", Cell: func(v api.JobVersion) string { return fmt.Sprint(v.Version) }},
				{Head: "current", Cell: func(v api.JobVersion) string { return term.YesNo(v.Current) }},
				{Head: "stable", Cell: func(v api.JobVersion) string { return term.YesNo(v.Stable) }},
				{Head: "completed", Cell: func(v api.JobVersion) string { return term.YesNo(v.Completed) }},
				{Head: "revert of", Cell: revertOf},
				{Head: "created", Cell: func(v api.JobVersion) string { return term.Stamp(&v.CreatedAt) }},
				{Head: "actor", Cell: func(v api.JobVersion) string { return string(v.Actor) }},
				{Head: "message", Cell: func(v api.JobVersion) string { return v.Message }},
				{Head: "index", Wide: true, Cell: func(v api.JobVersion) string { return fmt.Sprint(v.Index) }},
			})
		},
	}
}

func revertOf(v api.JobVersion) string {
	if v.RevertOf == 0 {
		return "-"
	}
	return fmt.Sprint(v.RevertOf)
}

func jobRestart(a *app) *cobra.Command {
	var change changeFlags
	cmd := &cobra.Command{
		Use: "restart JOB [GROUP]", Short: "roll every instance to a new version of the same spec", Args: term.Between(1, 2),
		ValidArgsFunction: a.complete("jobs"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var body api.RestartBody
			if len(args) == 2 {
				body.Group = args[1]
			}
			return a.changeJob(cmd.Context(), "is rolled", &change,
				func(ctx context.Context, o client.WriteOptions) (client.Response[api.JobReply], error) {
					return a.client().Jobs.Restart(ctx, args[0], body, o)
				})
		},
	}
	change.register(cmd, "check only, change nothing")
	return cmd
}

func jobStop(a *app) *cobra.Command {
	var write writeFlags
	var until waitFlags
	var purge bool
	cmd := &cobra.Command{
		Use: "stop JOB", Short: "stop every instance of a job", Args: term.Exactly("JOB"),
		ValidArgsFunction: a.complete("jobs"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			got, err := a.client().Jobs.Stop(ctx, args[0], api.StopBody{Purge: purge}, write.options())
			if err != nil {
				return err
			}
			name := args[0]
			if got.Value.Job != nil {
				name = jobName(*got.Value.Job)
			}
			if write.dryRun {
				stops, err := a.stopsOf(ctx, name, "", 0)
				if err != nil {
					return err
				}
				return a.showStops(got.Value, "is stopped", stops, &write)
			}
			if err := a.waitForJob(ctx, name, &until); err != nil {
				return err
			}
			return a.Show(term.Result{JSON: got.Raw, Names: []string{name}, Text: func(p *term.Page) {
				p.Line("job %s is stopped %s", name, write.done(got.Value.Index))
			}})
		},
	}
	write.register(cmd, "check and show what would stop, change nothing")
	until.register(cmd, "stopped")
	cmd.Flags().BoolVar(&purge, "purge", false, "also remove the job, once its last instance has stopped")
	return cmd
}
