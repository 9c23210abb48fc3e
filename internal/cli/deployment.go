package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
)

func deploymentID(d api.Deployment) string { return string(d.ID) }

func deploymentColumns(a *app) []column[api.Deployment] {
	return []column[api.Deployment]{
		{head: "id", cell: deploymentID},
		{head: "job", cell: func(d api.Deployment) string { return string(d.Job) }},
		{head: "version", cell: func(d api.Deployment) string { return fmt.Sprint(d.Version) }},
		{head: "status", cell: func(d api.Deployment) string { return string(d.Status) }},
		{head: "ready", cell: func(d api.Deployment) string {
			ready, count := 0, 0
			for _, g := range d.Groups {
				ready, count = ready+g.Ready, count+g.Count
			}
			return fmt.Sprintf("%d/%d", ready, count)
		}},
		{head: "age", cell: func(d api.Deployment) string { return a.age(&d.CreatedAt) }},
		{head: "reason", cell: func(d api.Deployment) string { return d.Reason }},
		{head: "promoted", wide: true, cell: func(d api.Deployment) string { return yesNo(d.Promoted) }},
	}
}

func deploymentLs(a *app) *cobra.Command {
	var filter listFlags
	var job string
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list deployments", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Deployments.List(cmd.Context(), client.DeploymentListOptions{ListOptions: filter.options(), Job: job})
			if err != nil {
				return err
			}
			return showList(a, got, deploymentID, deploymentColumns(a))
		},
	}
	filter.register(cmd)
	cmd.Flags().StringVar(&job, "job", "", "only of this job")
	return cmd
}

func deploymentStatus(a *app) *cobra.Command {
	return statusVerb{
		of: "DEPLOYMENT", short: "show a deployment", kind: "deployments",
		example: "outspan deployment status web-3\noutspan deployment status web-3 --wait --timeout 10m",
		states:  []string{"succeeded", "failed", "superseded", "rolling", "ended"}, wait: a.waitForDeployment, show: a.showDeployment,
	}.command(a)
}

func (a *app) showDeployment(ctx context.Context, ref string) error {
	got, err := a.client().Deployments.Get(ctx, ref, client.ReadOptions{})
	if err != nil {
		return err
	}
	d := got.Value
	return a.show(shown{json: got.Raw, names: []string{deploymentID(d)}, text: func(p *page) {
		p.fields(
			field{"Id", deploymentID(d)}, field{"Job", string(d.Job)}, field{"Version", fmt.Sprint(d.Version)}, field{"Status", string(d.Status)},
			field{"Reason", d.Reason}, field{"Promoted", yesNo(d.Promoted)}, field{"Created", stamp(&d.CreatedAt)}, field{"Index", number(d.Index)},
		)
		p.section("Groups")
		rows(p, d.Groups, []column[api.DeploymentGroup]{
			{head: "group", cell: func(g api.DeploymentGroup) string { return g.Name }},
			{head: "count", cell: func(g api.DeploymentGroup) string { return fmt.Sprint(g.Count) }},
			{head: "new", cell: func(g api.DeploymentGroup) string { return fmt.Sprint(g.Current) }},
			{head: "ready", cell: func(g api.DeploymentGroup) string { return fmt.Sprint(g.Ready) }},
			{head: "old", cell: func(g api.DeploymentGroup) string { return fmt.Sprint(g.Old) }},
		})
	}})
}

// deploymentWrite changes one deployment.
type deploymentWrite func(ctx context.Context, ref string, o client.WriteOptions) (client.Response[api.DeploymentReply], error)

// deploymentVerb is a write to one deployment.
func deploymentVerb(a *app, verb, short, done string, do deploymentWrite) *cobra.Command {
	var write writeFlags
	cmd := &cobra.Command{
		Use: verb + " DEPLOYMENT", Short: short, Args: exactly("DEPLOYMENT"), ValidArgsFunction: a.complete("deployments"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := do(cmd.Context(), args[0], write.options())
			if err != nil {
				return err
			}
			id := args[0]
			if got.Value.Deployment != nil {
				id = deploymentID(*got.Value.Deployment)
			}
			return a.show(shown{json: got.Raw, names: []string{id}, text: func(p *page) { p.line("deployment %s %s %s", id, write.would(done), write.done(got.Value.Index)) }})
		},
	}
	write.register(cmd, "check only, change nothing")
	return cmd
}

func deploymentPromote(a *app) *cobra.Command {
	return deploymentVerb(a, "promote", "accept the canaries of a deployment; it goes on", "is promoted", func(ctx context.Context, ref string, o client.WriteOptions) (client.Response[api.DeploymentReply], error) {
		return a.client().Deployments.Promote(ctx, ref, o)
	})
}

func deploymentFail(a *app) *cobra.Command {
	var reason string
	cmd := deploymentVerb(a, "fail", "end a deployment as failed; with auto_revert the job goes back", "is failed", func(ctx context.Context, ref string, o client.WriteOptions) (client.Response[api.DeploymentReply], error) {
		return a.client().Deployments.Fail(ctx, ref, api.FailBody{Reason: reason}, o)
	})
	cmd.Flags().StringVarP(&reason, "message", "m", "", "why, for people")
	return cmd
}
