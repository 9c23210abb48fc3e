package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/model"
)

func jobName(j api.Job) string { return string(j.Name) }

// maxJobFile is one byte more than a job file may have: config refuses the file by its size.
const maxJobFile = 256<<10 + 1

// readFile reads a file, or standard input for "-".
func (a *app) readFile(path string, most int64) ([]byte, error) {
	in := a.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, usage("can't read the file: %v", err).WithHint("%s", fileHint(path, err))
		}
		defer f.Close()
		in = f
	}
	src, err := io.ReadAll(io.LimitReader(in, most))
	if err != nil {
		return nil, usage("can't read %s: %v", path, err).WithHint("%s", fileHint(path, err))
	}
	return src, nil
}

// fileHint is what to do about a file that can't be read.
func fileHint(path string, err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "check the path; an example of a job file is written by: outspan job init"
	case errors.Is(err, fs.ErrPermission):
		return "see who may read it with: ls -l " + path
	case errors.Is(err, syscall.EISDIR):
		return "name a file in it"
	}
	return "give another file, or - for standard input"
}

// readJob reads a job file, and warns of what in it is most likely not meant.
func (a *app) readJob(path string) (model.JobSpec, error) {
	src, err := a.readFile(path, maxJobFile)
	if err != nil {
		return model.JobSpec{}, err
	}
	spec, err := config.ParseJob(path, src)
	if err != nil {
		return spec, err
	}
	for _, warning := range spec.Warnings() {
		a.note("warning: %s", warning)
	}
	return spec, nil
}

// groupSum adds up one number of all groups.
func groupSum(groups []api.JobGroup, of func(api.JobGroup) int) (n int) {
	for _, g := range groups {
		n += of(g)
	}
	return n
}

func readyText(groups []api.JobGroup) string {
	return fmt.Sprintf("%d/%d", groupSum(groups, func(g api.JobGroup) int { return g.Ready }), groupSum(groups, func(g api.JobGroup) int { return g.Count }))
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
		Use: "ls", Aliases: []string{"list"}, Short: "list jobs", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Jobs.List(cmd.Context(), filter.options())
			if err != nil {
				return err
			}
			return showList(a, got, jobName, []column[api.Job]{
				{head: "name", cell: jobName},
				{head: "status", cell: func(j api.Job) string { return string(j.Status) }},
				{head: "version", cell: func(j api.Job) string { return fmt.Sprint(j.Version) }},
				{head: "class", cell: func(j api.Job) string { return string(j.Class) }},
				{head: "ready", cell: func(j api.Job) string { return readyText(j.Groups) }},
				{head: "pending", cell: func(j api.Job) string { return pendingText(j.Groups) }},
				{head: "groups", wide: true, cell: func(j api.Job) string { return fmt.Sprint(len(j.Groups)) }},
				{head: "stable version", wide: true, cell: func(j api.Job) string { return number(j.Stable) }},
				{head: "deployment", wide: true, cell: func(j api.Job) string { return string(j.DeploymentID) }},
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
		states:  []string{"ready", "running", "pending", "starting", "degraded", "stopping", "stopped"}, wait: a.waitForJobLike, show: a.showJob,
	}.command(a)
}

// waitForJobLike is waitForJob for a unique prefix of a name, too.
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
	if !a.output.machine() {
		if d := a.rolloutOf(ctx, &j.Job); d != nil {
			rollout = cmp.Or(rolloutText(d, ""), rollout)
		}
		if instances, err = a.client().Instances.List(ctx, client.InstanceListOptions{Job: string(j.Name)}); err != nil {
			return err
		}
	}
	return a.show(shown{json: job.Raw, names: []string{string(j.Name)}, text: func(p *page) {
		p.fields(
			field{"Name", string(j.Name)}, field{"Status", string(j.Status)}, field{"Version", fmt.Sprint(j.Version)},
			field{"Stable version", number(j.Stable)}, field{"Class", string(j.Class)}, field{"Deployment", rollout},
		)
		p.section("Groups")
		groupRows(p, j.Groups)
		p.avoids(j.Avoids)
		p.section("Instances")
		rows(p, sorted(instances, bySlot).Items, a.instanceColumns())
	}})
}

// avoids lists the nodes that get no new instance of a job while there is another node.
func (p *page) avoids(list []api.JobAvoidsNode) {
	if len(list) == 0 {
		return
	}
	p.section("Avoided nodes")
	rows(p, list, []column[api.JobAvoidsNode]{
		{head: "group", cell: func(x api.JobAvoidsNode) string { _, name := x.Group.Split(); return name }},
		{head: "node", cell: func(x api.JobAvoidsNode) string { return x.Node }},
		{head: "until", cell: func(x api.JobAvoidsNode) string { return stamp(&x.Until) }},
		{head: "reason", cell: func(x api.JobAvoidsNode) string { return x.Reason }},
	})
}

func groupRows(p *page, groups []api.JobGroup) {
	rows(p, groups, []column[api.JobGroup]{
		{head: "group", cell: func(g api.JobGroup) string { return g.Name }},
		{head: "role", cell: func(g api.JobGroup) string { return string(g.Role) }},
		{head: "count", cell: func(g api.JobGroup) string { return fmt.Sprint(g.Count) }},
		{head: "ready", cell: func(g api.JobGroup) string { return fmt.Sprint(g.Ready) }},
		{head: "placed", cell: func(g api.JobGroup) string { return fmt.Sprint(g.Placed) }},
		{head: "pending", cell: func(g api.JobGroup) string { return fmt.Sprint(g.Pending) }},
		{head: "reason", cell: func(g api.JobGroup) string { return g.Reason }},
	})
}

func jobHistory(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "history JOB", Short: "show the versions of a job, oldest first", Args: exactly("JOB"), ValidArgsFunction: a.complete("jobs"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := a.client().Jobs.Versions(cmd.Context(), args[0], client.ListOptions{})
			if err != nil {
				return err
			}
			return showList(a, got, func(v api.JobVersion) string { return fmt.Sprint(v.Version) }, []column[api.JobVersion]{
				{head: "version", cell: func(v api.JobVersion) string { return fmt.Sprint(v.Version) }},
				{head: "current", cell: func(v api.JobVersion) string { return yesNo(v.Current) }},
				{head: "stable", cell: func(v api.JobVersion) string { return yesNo(v.Stable) }},
				{head: "completed", cell: func(v api.JobVersion) string { return yesNo(v.Completed) }},
				{head: "revert of", cell: revertOf},
				{head: "created", cell: func(v api.JobVersion) string { return stamp(&v.CreatedAt) }},
				{head: "actor", cell: func(v api.JobVersion) string { return string(v.Actor) }},
				{head: "message", cell: func(v api.JobVersion) string { return v.Message }},
				{head: "index", wide: true, cell: func(v api.JobVersion) string { return fmt.Sprint(v.Index) }},
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
		Use: "restart JOB [GROUP]", Short: "roll every instance to a new version of the same spec", Args: between(1, 2), ValidArgsFunction: a.complete("jobs"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var body api.RestartBody
			if len(args) == 2 {
				body.Group = args[1]
			}
			return a.changeJob(cmd.Context(), "is rolled", &change, func(ctx context.Context, o client.WriteOptions) (client.Response[api.JobReply], error) {
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
		Use: "stop JOB", Short: "stop every instance of a job", Args: exactly("JOB"), ValidArgsFunction: a.complete("jobs"),
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
			return a.show(shown{json: got.Raw, names: []string{name}, text: func(p *page) { p.line("job %s is stopped %s", name, write.done(got.Value.Index)) }})
		},
	}
	write.register(cmd, "check and show what would stop, change nothing")
	until.register(cmd, "stopped")
	cmd.Flags().BoolVar(&purge, "purge", false, "also remove the job, once its last instance has stopped")
	return cmd
}
