package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
)

func deploymentID(d api.Deployment) string { return string(d.ID) }

func deploymentColumns(a *app) []term.Column[api.Deployment] {
	return []term.Column[api.Deployment]{
		{Head: "id", Cell: deploymentID},
		{Head: "job", Cell: func(d api.Deployment) string { return string(d.Job) }},
		{Head: "version", Cell: func(d api.Deployment) string { return fmt.Sprint(d.Version) }},
		{Head: "status", Cell: func(d api.Deployment) string { return string(d.Status) }},
		{Head: "ready", Cell: func(d api.Deployment) string {
			if d.Status.Ended() {
				return "-" // its counts are of what runs now, which later versions have changed
			}
			ready, count := 0, 0
			for _, g := range d.Groups {
				ready, count = ready+g.Ready, count+g.Count
			}
			return fmt.Sprintf("%d/%d", ready, count)
		}},
		{Head: "age", Cell: func(d api.Deployment) string { return a.Age(&d.CreatedAt) }},
		{Head: "reason", Cell: func(d api.Deployment) string { return d.Reason }},
		{Head: "promoted", Wide: true, Cell: func(d api.Deployment) string { return term.YesNo(d.Promoted) }},
	}
}

func deploymentLs(a *app) *cobra.Command {
	var filter listFlags
	var job string
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list deployments", Args: term.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Deployments.List(cmd.Context(),
				client.DeploymentListOptions{ListOptions: filter.options(), Job: job})
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
		states:  []string{"succeeded", "failed", "superseded", "rolling", "ended"},
		wait:    a.waitForDeployment, show: a.showDeployment,
	}.command(a)
}

func (a *app) showDeployment(ctx context.Context, ref string) error {
	got, err := a.client().Deployments.Get(ctx, ref, client.ReadOptions{})
	if err != nil {
		return err
	}
	d := got.Value
	return a.Show(term.Result{JSON: got.Raw, Names: []string{deploymentID(d)}, Text: func(p *term.Page) {
		p.Fields(
			term.Field{"Id", deploymentID(d)}, term.Field{"Job", string(d.Job)}, term.Field{"Version", fmt.Sprint(d.Version)},
			term.Field{"Status", string(d.Status)},
			term.Field{"Reason", d.Reason}, term.Field{"Promoted", term.YesNo(d.Promoted)},
			term.Field{"Created", term.Stamp(&d.CreatedAt)}, term.Field{"Index", term.Number(d.Index)},
		)
		if d.Status.Ended() {
			return // its counts are of what runs now
		}
		p.Section("Groups")
		term.Rows(p, d.Groups, []term.Column[api.DeploymentGroup]{
			{Head: "group", Cell: func(g api.DeploymentGroup) string { return g.Name }},
			{Head: "count", Cell: func(g api.DeploymentGroup) string { return fmt.Sprint(g.Count) }},
			{Head: "new", Cell: func(g api.DeploymentGroup) string { return fmt.Sprint(g.Current) }},
			{Head: "ready", Cell: func(g api.DeploymentGroup) string { return fmt.Sprint(g.Ready) }},
			{Head: "old", Cell: func(g api.DeploymentGroup) string { return fmt.Sprint(g.Old) }},
		})
	}})
}

type deploymentWrite func(client.Deployments, context.Context, string,
	client.WriteOptions) (client.Response[api.DeploymentReply], error)

// deploymentVerb makes a command for a write to one deployment.
func deploymentVerb(a *app, verb, short, done string, do deploymentWrite) *cobra.Command {
	return oneChange{noun: "deployment", verb: verb, short: short, arg: "DEPLOYMENT", kind: "deployments", done: done,
		do: func(ctx context.Context, ref string, o client.WriteOptions) (changed, error) {
			got, err := do(a.client().Deployments, ctx, ref, o)
			if got.Value.Deployment != nil {
				ref = deploymentID(*got.Value.Deployment)
			}
			return changed{got.Raw, ref, got.Value.Index}, err
		}}.command(a)
}

func deploymentPromote(a *app) *cobra.Command {
	return deploymentVerb(a, "promote", "accept the canaries of a deployment; it goes on", "is promoted",
		client.Deployments.Promote)
}

func deploymentFail(a *app) *cobra.Command {
	var reason string
	do := func(c client.Deployments, ctx context.Context, ref string,
		o client.WriteOptions) (client.Response[api.DeploymentReply], error) {
		return c.Fail(ctx, ref, api.FailBody{Reason: reason}, o)
	}
	cmd := deploymentVerb(a, "fail", "end a deployment as failed; with auto_revert the job goes back", "is failed", do)
	cmd.Flags().StringVarP(&reason, "message", "m", "", "why, for people")
	return cmd
}
