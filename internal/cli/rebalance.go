package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
)

func rebalanceCommand(a *app) *cobra.Command {
	var write writeFlags
	cmd := &cobra.Command{
		Use: "rebalance", Short: "move instances to better nodes now, one cycle of moves", Args: term.Between(0, 0),
		Long: `Begins one cycle of the moves that the rescheduler would make: off nodes that are over-used, and onto nodes that meet more of a group's preferences (affinity,
spread). It runs even if the setting rescheduler is off, and does not wait for the next cycle or the window. Budgets, cool-downs, minimum ages and the minimum
gain apply as always. Each move starts the replacement first.

With --dry-run nothing is changed; moves that would not begin say why.`,
		Example: "outspan rebalance --dry-run\noutspan rebalance",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if write.dryRun {
				got, err := a.client().Cluster.ForecastRebalance(cmd.Context(), client.ReadOptions{})
				if err != nil {
					return err
				}
				return a.Show(term.Result{JSON: got.Raw, Names: movedNames(got.Value.Items), Text: func(p *term.Page) {
					moveTable(p, got.Value.Items)
					p.Line("the rescheduler is %s; outspan rebalance would do this now (dry run: nothing was changed)",
						got.Value.Rescheduler)
				}})
			}
			got, err := a.client().Cluster.Rebalance(cmd.Context(), write.options())
			if err != nil {
				return err
			}
			return a.Show(term.Result{JSON: got.Raw, Names: movedNames(got.Value.Items), Text: func(p *term.Page) {
				moveTable(p, got.Value.Items)
				if len(got.Value.Items) == 0 {
					p.Line("no move would gain anything now; see: outspan rebalance --dry-run")
					return
				}
				p.Line("%d moves began %s", len(got.Value.Items), write.done(got.Value.Index))
			}})
		},
	}
	write.register(cmd, "show what would be moved and what holds back the rest, change nothing")
	return cmd
}

func movedNames(items []api.Move) []string {
	names := make([]string, len(items))
	for i, m := range items {
		names[i] = string(m.Instance)
	}
	return names
}

func moveTable(p *term.Page, items []api.Move) {
	if len(items) == 0 {
		return
	}
	term.Rows(p, items, []term.Column[api.Move]{
		{Head: "instance", Cell: func(m api.Move) string { return string(m.Instance) }},
		{Head: "group", Cell: func(m api.Move) string { return string(m.Group) }},
		{Head: "from", Cell: func(m api.Move) string { return m.From }},
		{Head: "to", Cell: func(m api.Move) string { return m.To }},
		{Head: "cause", Cell: func(m api.Move) string { return string(m.Cause) }},
		{Head: "gain", Cell: func(m api.Move) string { return fmt.Sprint(m.Gain) }},
		{Head: "waits for", Cell: func(m api.Move) string {
			if m.Blocker == nil {
				return ""
			}
			return string(m.Blocker.Code) + ": " + m.Blocker.Message
		}},
	})
}
