package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/local"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

func budgetName(b api.Budget) string { return b.Name }

func budgetLs(a *app) *cobra.Command {
	var filter listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list the budgets of groups, the shared ones, and the rates of actors",
		Args: term.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Budgets.List(cmd.Context(), filter.options())
			if err != nil {
				return err
			}
			return showList(a, got, budgetName, []term.Column[api.Budget]{
				{Head: "name", Cell: budgetName},
				{Head: "ready", Cell: readyOfWant},
				{Head: "min ready", Cell: func(b api.Budget) string { return ofInstances(b, b.MinReady) }},
				{Head: "max down", Cell: func(b api.Budget) string { return ofInstances(b, b.MaxDown) }},
				{Head: "down", Cell: func(b api.Budget) string {
					if b.Scope == scopeActor {
						return ""
					}
					return downText(b)
				}},
				{Head: "allowed", Cell: func(b api.Budget) string { return fmt.Sprint(b.Allowed) }},
				{Head: "rate", Cell: rateText},
				{Head: "next allowed", Cell: nextAllowed},
				{Head: "scope", Cell: func(b api.Budget) string { return b.Scope }},
				{Head: "shared", Wide: true, Cell: func(b api.Budget) string { return strings.Join(b.Shared, ", ") }},
				{Head: "how", Wide: true, Cell: func(b api.Budget) string { return b.Text }},
			})
		},
	}
	filter.register(cmd)
	return cmd
}

// scopeActor is the scope of a row that shows an actor's rate instead of a budget of instances.
const scopeActor = "actor"

func readyOfWant(b api.Budget) string {
	if b.Scope == scopeActor {
		return ""
	}
	return fmt.Sprintf("%d/%d", b.Ready, b.Want)
}

func ofInstances(b api.Budget, n int) string {
	if b.Scope == scopeActor {
		return ""
	}
	return fmt.Sprint(n)
}

func downText(b api.Budget) string {
	return fmt.Sprintf("%d (%d voluntary)", b.Down.Voluntary+b.Down.Involuntary, b.Down.Voluntary)
}

// downByCause returns how many instances are down, and for which causes: "2 (1 voluntary): node_draining 1,
// node_offline 1".
func downByCause(b api.Budget) string {
	text := downText(b)
	for i, cause := range slices.Sorted(maps.Keys(b.Down.ByCause)) {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		text += fmt.Sprintf("%s%s %d", sep, cause, b.Down.ByCause[cause])
	}
	return text
}

func rateText(b api.Budget) string {
	if b.Rate == nil {
		return ""
	}
	return fmt.Sprintf("%d of %d in %s", b.Rate.Used, b.Rate.Max, b.Rate.Window)
}

func nextAllowed(b api.Budget) string {
	if b.Rate == nil || b.Rate.NextAllowed == nil {
		return ""
	}
	return term.Stamp(b.Rate.NextAllowed)
}

// readBudget reads the shared budget with a name. If the name has the form JOB/GROUP, it reads the budget of that
// group.
func (a *app) readBudget(ctx context.Context, name string) (client.Response[api.Budget], error) {
	job, group, ofGroup := strings.Cut(name, "/")
	switch {
	case !ofGroup && name != "":
		return a.client().Budgets.Get(ctx, name, client.ReadOptions{})
	case job == "" || group == "":
		return client.Response[api.Budget]{}, term.Usage("%q is neither the name of a shared budget nor JOB/GROUP", name).
			WithHint("list budgets with: outspan budget ls")
	}
	return a.client().Budgets.OfGroup(ctx, job, group, client.ReadOptions{})
}

func budgetStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "status NAME|JOB/GROUP", Short: "show what a group, or the groups that share a budget, can lose now",
		Args: term.Exactly("NAME|JOB/GROUP"), ValidArgsFunction: a.complete("budgets"),
		Example: "outspan budget status web/http\noutspan budget status db",
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := a.readBudget(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			b := got.Value
			return a.Show(term.Result{JSON: got.Raw, Names: []string{budgetName(b)}, Text: func(p *term.Page) {
				budgetPage(p, b)
			}})
		},
	}
}

func budgetPage(p *term.Page, b api.Budget) {
	groups := ""
	if b.Scope == model.ScopeShared {
		groups = joinedText(b.Groups)
	}
	p.Fields(
		term.Field{"Name", budgetName(b)}, term.Field{"Scope", b.Scope},
		term.Field{"Ready", fmt.Sprintf("%d of %d", b.Ready, b.Want)},
		term.Field{"Min ready", fmt.Sprint(b.MinReady)}, term.Field{"Max down", fmt.Sprint(b.MaxDown)},
		term.Field{"Why so", b.Text}, term.Field{"Down", downByCause(b)},
		term.Field{"Being prepared", term.Number(b.Held)},
		term.Field{"Not heard of since the restore", term.Number(b.Unheard)},
		term.Field{"Allowed now", fmt.Sprint(b.Allowed)}, term.Field{"Rate", rateText(b)},
		term.Field{"Next allowed", nextAllowed(b)},
		term.Field{"Groups", groups}, term.Field{"Also under", strings.Join(b.Shared, ", ")},
	)
}

func asTexts[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, one := range list {
		out[i] = string(one)
	}
	return out
}

// joinedText joins ids with commas. It returns "none" for an empty list.
func joinedText[T ~string](list []T) string {
	return cmp.Or(strings.Join(asTexts(list), ", "), "none")
}

func budgetSet(a *app) *cobra.Command {
	var write writeFlags
	var spec model.BudgetSpec
	var minReady, maxDown, rate string
	cmd := &cobra.Command{
		Use: "set NAME", Short: "make a budget that groups share, or replace it", Args: term.Exactly("NAME"),
		ValidArgsFunction: a.complete("budgets"),
		Long: `Makes a budget that groups share by naming it in their job files: budget = "NAME". What is ready and wanted is counted over all of them.
The whole budget is replaced: what is not given is not limited. Percentages are of the sum of the groups' counts, rounded so that they never allow more.`,
		Example: "outspan budget set db --min-ready 2\noutspan budget set db --max-down 25% --rate 1/10m",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := budgetSpec(&spec, minReady, maxDown, rate); err != nil {
				return err
			}
			got, err := a.client().Budgets.Set(cmd.Context(), args[0], spec, write.options())
			if err != nil {
				return err
			}
			return a.Show(term.Result{JSON: got.Raw, Names: args, Text: func(p *term.Page) {
				p.Line("budget %s %s %s", args[0], write.would("is set"), write.done(got.Value.Index))
				if b := got.Value.Budget; b != nil {
					p.Line("  %s", b.Text)
				}
			}})
		},
	}
	write.register(cmd, "check and show what it would come to, change nothing")
	cmd.Flags().StringVar(&minReady, "min-ready", "", "how many must stay ready: a number, or a percentage such as 75%")
	cmd.Flags().StringVar(&maxDown, "max-down", "", "how many may be down: a number, or a percentage such as 25%")
	cmd.Flags().StringVar(&rate, "rate", "", "how many stops may begin in a window: 1/10m")
	cmd.Flags().
		BoolVar(&spec.Blocking, "blocking", false,
			"accept that the budget may allow nothing; then only a drain's forced deadline gets past it")
	return cmd
}

func budgetSpec(spec *model.BudgetSpec, minReady, maxDown, rate string) error {
	for _, f := range [...]struct {
		flag, text string
		to         **model.Amount
	}{{"min-ready", minReady, &spec.MinReady}, {"max-down", maxDown, &spec.MaxDown}} {
		if f.text == "" {
			continue
		}
		amount := new(model.Amount)
		if err := amount.UnmarshalText([]byte(f.text)); err != nil {
			return term.Usage("--%s: %v", f.flag, err)
		}
		*f.to = amount
	}
	if rate != "" {
		var r model.ActorRate
		if err := r.UnmarshalText([]byte(rate)); err != nil {
			return term.Usage("--rate: %v", err)
		}
		if r.Max > 0 {
			spec.Rate = &model.RateSpec{Max: r.Max, Window: r.Window}
		}
	}
	return nil
}

func budgetRm(a *app) *cobra.Command {
	cmd := oneChange{noun: "budget", verb: "rm", short: "remove a shared budget that no group names", arg: "NAME",
		kind: "budgets", done: "is removed",
		do: func(ctx context.Context, name string, o client.WriteOptions) (changed, error) {
			got, err := a.client().Budgets.Remove(ctx, name, o)
			return changed{got.Raw, name, got.Value.Index}, err
		}}.command(a)
	cmd.Aliases = []string{"remove"}
	return cmd
}

func budgetLine(b model.BudgetLine) string {
	if b.Scope == model.ScopeShared {
		return fmt.Sprintf("budget %s (shared): %s", b.Name, b.Text)
	}
	return fmt.Sprintf("budget of %s: %s", b.Name, b.Text)
}

// budgetNotes prints comments for a job file: for each group, what its own budget means, and which shared budgets it
// names. Groups with the role system have no budget of their own.
func budgetNotes(p *term.Page, spec model.JobSpec) {
	for i := range spec.Groups {
		g := &spec.Groups[i]
		if g.Role != model.RoleSystem {
			p.Line("# %s", budgetLine(local.PreviewBudget(g, spec.Name, spec.Class)))
		}
		for _, name := range g.Budgets {
			p.Line("# budget %s (shared): counted over all groups that name it; job plan shows what it comes to", name)
		}
	}
}
