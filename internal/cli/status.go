package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

func statusCommand(a *app) *cobra.Command {
	var consistency string
	cmd := &cobra.Command{
		Use: "status [ID]", Short: "show the cluster, or any object by its id or name", Args: term.Between(0, 1),
		ValidArgsFunction: a.complete("any"),
		Long: "Without an id: cluster, leader, problems with the way out of each,\n" +
			"servers, nodes by state, jobs, drains, HOLD and " +
			"whether actuation is paused.\n" +
			"With the id, name or unique prefix of a node, job, instance, drain or deployment: shows that.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return a.showAny(cmd.Context(), args[0])
			}
			var got client.Response[api.Status]
			err := orStale(a, client.Consistency(consistency), func(fresh client.Consistency) (err error) {
				got, err = a.client().Cluster.Status(cmd.Context(), client.ReadOptions{Consistency: fresh})
				return err
			})
			if err != nil {
				return err
			}
			return a.Show(term.Result{JSON: got.Raw, Names: []string{got.Value.Cluster}, Text: func(p *term.Page) {
				a.statusPage(p, got.Value)
			}})
		},
	}
	cmd.Flags().
		StringVar(&consistency, "consistency", "", "default, consistent or stale (any server, also without a leader)")
	return cmd
}

func (a *app) statusPage(p *term.Page, s api.Status) {
	leader := s.Leader
	if leader == "" {
		leader = "none"
	}
	p.Fields(
		term.Field{"Cluster", s.Cluster}, term.Field{"Leader", leader}, term.Field{"Servers", serversText(s.Servers)},
		term.Field{"Nodes", countsText(s.Nodes)}, term.Field{"Jobs", countsText(s.Jobs)},
		term.Field{"Instances", countsText(s.Instances)},
		term.Field{"Drains", fmt.Sprintf("%d running", len(s.Drains))},
		term.Field{"Deployments", fmt.Sprintf("%d running", len(s.Deployments))},
		term.Field{"Problems", problemsText(s.Problems)}, term.Field{"HOLD", holdText(s.Hold)},
		term.Field{"Paused", term.YesNo(s.Paused)}, term.Field{"Index", fmt.Sprint(s.Index)},
		term.Field{"Version", s.Version},
	)
	if len(s.Problems) > 0 {
		p.Section("Problems")
		term.Rows(p, s.Problems, problemColumns())
	}
	if len(s.Servers) > 0 {
		p.Section("Servers")
		term.Rows(p, s.Servers, memberColumns(s.Servers))
	}
	if len(s.Drains) > 0 {
		p.Section("Drains")
		term.Rows(p, s.Drains, a.drainColumns())
	}
	if len(s.Deployments) > 0 {
		p.Section("Deployments")
		term.Rows(p, s.Deployments, deploymentColumns(a))
	}
}

func problemColumns() []term.Column[api.ProblemRow] {
	return []term.Column[api.ProblemRow]{
		{Head: "where", Cell: func(p api.ProblemRow) string { return strings.Replace(p.Subject, "/", " ", 1) }},
		{Head: "what", Cell: func(p api.ProblemRow) string { return p.Message }},
		{Head: "way out", Cell: func(p api.ProblemRow) string { return p.Next }},
		{Head: "code", Cell: func(p api.ProblemRow) string { return string(p.Code) }, Wide: true},
	}
}

func problemsText(problems []api.ProblemRow) string {
	if len(problems) == 0 {
		return "none"
	}
	return fmt.Sprint(len(problems))
}

func serversText(members []api.Member) string {
	if len(members) == 0 {
		return ""
	}
	voters, alive := 0, 0
	for _, m := range members {
		if m.Voter {
			voters++
		}
		if m.State == "alive" {
			alive++
		}
	}
	return fmt.Sprintf("%d (%d voting, %d alive)", len(members), voters, alive)
}

// countsText formats counts as "5 (2 failed, 3 ready)": the total, and each count that is not 0.
func countsText(counts map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[name]; n > 0 && name != "total" {
			parts = append(parts, fmt.Sprintf("%d %s", n, name))
		}
	}
	if len(parts) == 0 {
		return fmt.Sprint(counts["total"])
	}
	return fmt.Sprintf("%d (%s)", counts["total"], strings.Join(parts, ", "))
}

func holdText(h api.Hold) string {
	if !h.Active {
		return "no"
	}
	return "since " + term.Stamp(h.Since) + ", for what was seen then: " + h.Reason
}

// showAny shows the object that an id or a name means. For a group it shows the group's job.
func (a *app) showAny(ctx context.Context, ref string) error {
	kind, id, err := a.kindOf(ctx, ref, "")
	switch {
	case isCode(err, model.CodeNotFound):
		return a.showOther(ctx, ref, err)
	case err != nil:
		return err
	case kind == "job" && strings.HasPrefix(ref, id+"-"): // ref is a deployment's id, for which kindOf returns the job
		kind, id = "deployment", ref
	}
	switch kind {
	case "node":
		return a.showNode(ctx, id)
	case "instance":
		return a.showInstance(ctx, id)
	case "drain":
		return a.showDrain(ctx, id)
	case "deployment":
		return a.showDeployment(ctx, id)
	case "group":
		id, _, _ = strings.Cut(id, "/")
	}
	return a.showJob(ctx, id)
}

// showOther shows the server or the service that ref names, because kindOf finds neither. If ref names no server or
// service, showOther returns the parameter unknown.
func (a *app) showOther(ctx context.Context, ref string, unknown error) error {
	members, err := a.client().Members.List(ctx, client.ListOptions{Filter: []string{"name=" + ref}})
	if err == nil && len(members.Items) > 0 {
		return showList(a, members, memberName, memberColumns(members.Items))
	}
	if err := a.showService(ctx, ref); !isCode(err, model.CodeNotFound) {
		return err
	}
	return unknown
}

// kindOf asks the servers which object an id, a name or a prefix means. It returns the object's kind and its full id or
// name.
func (a *app) kindOf(ctx context.Context, ref string, fresh client.Consistency) (kind, id string, err error) {
	got, err := a.client().Cluster.Why(ctx, ref, client.ReadOptions{Consistency: fresh})
	if err != nil {
		return "", "", err
	}
	kind, id, ok := strings.Cut(got.Value.Subject, "/")
	if !ok {
		return "", "", model.Refuse(model.CodeInternal, "the server calls %q %q", ref, got.Value.Subject)
	}
	return kind, id, nil
}

func whyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "why ID", Short: "explain the state of an instance, job, group, node, drain or deployment",
		Args: term.Exactly("ID"), ValidArgsFunction: a.complete("any"),
		Long: "Tells how an object came to its state (which log entry, which cause, who), which nodes placement looked " +
			"at, what blocks, and what comes next.",
		Example: "outspan why web\noutspan why web/http\noutspan why n7\noutspan why 01J9Z",
		RunE: func(cmd *cobra.Command, args []string) error {
			var got client.Response[api.Why]
			err := orStale(a, "", func(fresh client.Consistency) (err error) {
				got, err = a.client().Cluster.Why(cmd.Context(), args[0], client.ReadOptions{Consistency: fresh})
				return err
			})
			if err != nil {
				return err
			}
			return a.showWhy(got)
		},
	}
}

func (a *app) showWhy(got client.Response[api.Why]) error {
	w := got.Value
	return a.Show(term.Result{JSON: got.Raw, Names: []string{w.Subject}, Text: func(p *term.Page) {
		p.Fields(term.Field{"Subject", w.Subject}, term.Field{"State", w.State}, term.Field{"Since", term.Stamp(w.Since)},
			term.Field{"Next", w.Next})
		if len(w.Chain) > 0 {
			p.Section("How it came to this")
			term.Rows(p, w.Chain, []term.Column[api.WhyLink]{
				{Head: "index", Cell: func(l api.WhyLink) string { return fmt.Sprint(l.Index) }},
				{Head: "time", Cell: func(l api.WhyLink) string { return term.Stamp(&l.Time) }},
				{Head: "cause", Cell: func(l api.WhyLink) string { return string(l.Cause) }},
				{Head: "actor", Cell: func(l api.WhyLink) string { return string(l.Actor) }},
				{Head: "what", Cell: func(l api.WhyLink) string { return l.Text }},
			})
		}
		if len(w.Considered) > 0 {
			p.Section("Nodes considered")
			term.Rows(p, w.Considered, []term.Column[api.WhyConsidered]{
				{Head: "node", Cell: func(c api.WhyConsidered) string { return c.Node }},
				{Head: "score", Cell: scoreText},
				{Head: "excluded by", Cell: func(c api.WhyConsidered) string { return string(c.ExcludedBy) }},
			})
		}
		if w.Hidden > 0 {
			p.Line("%d more nodes that you may not see", w.Hidden)
		}
		for _, sum := range sumsOf(w.Blockers) {
			p.Line("blocked: %s", sumText(sum))
		}
	}})
}

func scoreText(c api.WhyConsidered) string {
	if c.Score == nil {
		return ""
	}
	return fmt.Sprint(*c.Score)
}
