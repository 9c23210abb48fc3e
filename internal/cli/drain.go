package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/model"
)

func drainID(d api.Drain) string { return string(d.ID) }

func (a *app) drainColumns() []column[api.Drain] {
	return []column[api.Drain]{
		{head: "id", cell: drainID},
		{head: "phase", cell: func(d api.Drain) string { return string(d.Phase) }},
		{head: "nodes", cell: func(d api.Drain) string {
			var names []string
			for _, n := range d.Nodes {
				names = append(names, n.Node)
			}
			return joined(names)
		}},
		{head: "moved", cell: func(d api.Drain) string { return fmt.Sprint(moved(d) - stopped(d)) }},
		{head: "stopped", wide: true, cell: func(d api.Drain) string { return fmt.Sprint(stopped(d)) }},
		{head: "remaining", cell: func(d api.Drain) string { return fmt.Sprint(remaining(d)) }},
		{head: "blockers", cell: func(d api.Drain) string { return fmt.Sprint(blockers(d)) }},
		{head: "acked", cell: func(d api.Drain) string { return fmt.Sprint(acked(d)) }},
		{head: "paused", cell: func(d api.Drain) string { return yesNo(d.Paused) }},
		{head: "age", cell: func(d api.Drain) string { return a.age(&d.CreatedAt) }},
		{head: "actor", wide: true, cell: func(d api.Drain) string { return string(d.Actor) }},
		{head: "message", wide: true, cell: func(d api.Drain) string { return d.Message }},
	}
}

func moved(d api.Drain) (n int) {
	for _, one := range d.Nodes {
		n += one.Moved
	}
	return n
}

// stopped counts what was stopped and not replaced elsewhere.
func stopped(d api.Drain) (n int) {
	for _, one := range d.Nodes {
		n += one.Stopped
	}
	return n
}

// acked counts what stays because that was acknowledged.
func acked(d api.Drain) (n int) {
	for _, one := range d.Nodes {
		n += one.Acked
	}
	return n
}

func remaining(d api.Drain) (n int) {
	for _, one := range d.Nodes {
		n += len(one.Remaining)
	}
	return n
}

func blockers(d api.Drain) (n int) {
	for _, one := range d.Nodes {
		n += len(one.Blockers)
	}
	return n
}

func drainLs(a *app) *cobra.Command {
	var filter listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list drains, oldest first", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Drains.List(cmd.Context(), filter.options())
			if err != nil {
				return err
			}
			return showList(a, got, drainID, a.drainColumns())
		},
	}
	filter.register(cmd)
	return cmd
}

func drainStatus(a *app) *cobra.Command {
	return statusVerb{
		of: "DRAIN", short: "show a drain: what is left and what blocks it", kind: "drains",
		example: "outspan drain status 01J9Z\noutspan drain status 01J9Z --wait=ended --timeout 1h",
		states:  []string{"drained", "failed", "canceled", "ended"}, wait: a.waitForDrain, show: a.showDrain,
	}.command(a)
}

func (a *app) showDrain(ctx context.Context, ref string) error {
	got, err := a.client().Drains.Get(ctx, ref, client.ReadOptions{})
	if err != nil {
		return err
	}
	return a.show(shown{json: got.Raw, names: []string{drainID(got.Value)}, text: func(p *page) { a.drainPage(p, got.Value) }})
}

func (a *app) drainPage(p *page, d api.Drain) {
	phase := string(d.Phase)
	if d.Paused && d.Phase == model.PhaseDraining {
		phase += ", paused"
	}
	p.fields(
		field{"Id", drainID(d)}, field{"Phase", phase}, field{"Actor", string(d.Actor)}, field{"Message", d.Message},
		field{"Started", stamp(&d.CreatedAt)}, field{"Options", optionsText(d.Options)},
	)
	p.section("Nodes")
	rows(p, d.Nodes, []column[api.DrainNode]{
		{head: "node", cell: func(n api.DrainNode) string { return n.Node }},
		{head: "phase", cell: func(n api.DrainNode) string { return string(n.Phase) }},
		{head: "moved", cell: func(n api.DrainNode) string { return fmt.Sprint(n.Moved - n.Stopped) }},
		{head: "stopped", cell: func(n api.DrainNode) string { return fmt.Sprint(n.Stopped) }},
		{head: "remaining", cell: func(n api.DrainNode) string { return fmt.Sprint(len(n.Remaining)) }},
		{head: "acked", cell: func(n api.DrainNode) string { return fmt.Sprint(n.Acked) }},
		{head: "started", cell: func(n api.DrainNode) string { return stamp(n.StartedAt) }},
		{head: "deadline", cell: deadlineText},
		{head: "last error", cell: func(n api.DrainNode) string { return n.LastError }},
	})
	for _, n := range d.Nodes {
		p.drainLeft(n)
	}
}

// drainLeft shows what is left on a node and why: few instances one by one, of many how many share a state, and each
// reason once.
func (p *page) drainLeft(n api.DrainNode) {
	if len(n.Remaining) > 0 {
		p.section("Left on %s", n.Node)
	}
	switch {
	case len(n.Remaining) == 0:
	case len(n.Remaining) <= listedAtMost || p.wide:
		rows(p, n.Remaining, append([]column[api.DrainRemaining]{{head: "instance", cell: func(r api.DrainRemaining) string { return string(r.Instance) }}}, remainingColumns()...))
	default:
		alike := map[api.DrainRemaining]int{}
		var kinds []api.DrainRemaining
		for _, r := range n.Remaining {
			r.Instance = ""
			if alike[r]++; alike[r] == 1 {
				kinds = append(kinds, r)
			}
		}
		rows(p, kinds, append([]column[api.DrainRemaining]{{head: "instances", cell: func(r api.DrainRemaining) string { return fmt.Sprint(alike[r]) }}}, remainingColumns()...))
		p.line("  each instance: -o wide")
	}
	if len(n.Blockers) == 0 {
		return
	}
	p.section("Blockers on %s", n.Node)
	if p.wide {
		rows(p, n.Blockers, []column[api.DrainBlocker]{
			{head: "code", cell: func(b api.DrainBlocker) string { return string(b.Code) }},
			{head: "instance", cell: func(b api.DrainBlocker) string { return string(b.Instance) }},
			{head: "volume", cell: func(b api.DrainBlocker) string { return string(b.Volume) }},
			{head: "message", cell: func(b api.DrainBlocker) string { return b.Message }},
			{head: "unblock", cell: func(b api.DrainBlocker) string { return b.Unblock }},
		})
		return
	}
	rows(p, sumsOf(n.Blockers), []column[model.BlockerSum]{
		{head: "code", cell: func(s model.BlockerSum) string { return string(s.Code) }},
		{head: "instance", cell: func(s model.BlockerSum) string { return strings.TrimPrefix(s.Who(), "instance ") }},
		{head: "volume", cell: func(s model.BlockerSum) string { return strings.TrimPrefix(s.What(), "volume ") }},
		{head: "message", cell: func(s model.BlockerSum) string { return s.Message }},
		{head: "unblock", cell: func(s model.BlockerSum) string { return s.Unblock }},
	})
}

func remainingColumns() []column[api.DrainRemaining] {
	return []column[api.DrainRemaining]{
		{head: "class", cell: func(r api.DrainRemaining) string { return string(r.Class) }},
		{head: "state", cell: func(r api.DrainRemaining) string { return r.State }},
		{head: "blocker", cell: func(r api.DrainRemaining) string { return string(r.Blocker) }},
	}
}

func deadlineText(n api.DrainNode) string {
	switch {
	case n.Deadline != nil:
		return stamp(n.Deadline)
	case n.Turn:
		return "none"
	}
	return "its turn has not come"
}

func optionsText(o model.DrainOptions) string {
	text := "deadline " + o.Deadline.String()
	if o.Deadline == model.Forever {
		text = "no deadline"
	}
	for _, one := range [...]struct {
		set  bool
		text string
	}{
		{o.Force, "force"}, {o.ForceAtDeadline, "force at deadline"}, {o.IgnoreSystem, "ignore system"},
		{len(o.AcceptDowntime) > 0, "accept downtime of " + joined(o.AcceptDowntime)},
		{o.MaxParallelNodes > 0, fmt.Sprintf("%d nodes at once", o.MaxParallelNodes)}, {o.Policy != "", "policy " + o.Policy},
	} {
		if one.set {
			text += ", " + one.text
		}
	}
	return text
}

func drainWatch(a *app) *cobra.Command {
	var until waitFlags
	cmd := &cobra.Command{
		Use: "watch DRAIN", Short: "follow a drain until it has ended", Args: exactly("DRAIN"), ValidArgsFunction: a.complete("drains"),
		Long: "Follows a drain until it has ended: a line for each change. Exit codes: 0 drained, 22 failed, 23 --timeout.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !a.output.machine() {
				return a.followDrain(cmd.Context(), args[0], &until)
			}
			end, failed := a.watchDrain(cmd.Context(), args[0], &until, a.note)
			if end == nil {
				return failed
			}
			s, err := shownValue(*end, []string{drainID(*end)}, nil)
			if err == nil {
				err = a.show(s)
			}
			if err != nil {
				return err
			}
			return failed
		},
	}
	until.registerTimeout(cmd)
	return cmd
}

// drainWrite changes one drain.
type drainWrite func(ctx context.Context, ref string, o client.WriteOptions) (client.Response[api.DrainWriteReply], error)

// drainVerb is a write to one drain.
func drainVerb(a *app, verb, short, done string, do drainWrite) *cobra.Command {
	var write writeFlags
	cmd := &cobra.Command{
		Use: verb + " DRAIN", Short: short, Args: exactly("DRAIN"), ValidArgsFunction: a.complete("drains"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := do(cmd.Context(), args[0], write.options())
			if err != nil {
				return err
			}
			id := args[0]
			if got.Value.Drain != nil {
				id = drainID(*got.Value.Drain)
			}
			return a.show(shown{json: got.Raw, names: []string{id}, text: func(p *page) { p.line("drain %s %s %s", id, write.would(done), write.done(got.Value.Index)) }})
		},
	}
	write.register(cmd, "check only, change nothing")
	return cmd
}

func drainPause(a *app) *cobra.Command {
	return drainVerb(a, "pause", "begin no more evictions for now; the deadline goes on", "is paused", func(ctx context.Context, ref string, o client.WriteOptions) (client.Response[api.DrainWriteReply], error) {
		return a.client().Drains.Pause(ctx, ref, o)
	})
}

func drainResume(a *app) *cobra.Command {
	return drainVerb(a, "resume", "go on with a paused drain", "goes on", func(ctx context.Context, ref string, o client.WriteOptions) (client.Response[api.DrainWriteReply], error) {
		return a.client().Drains.Resume(ctx, ref, o)
	})
}

func drainCancel(a *app) *cobra.Command {
	var uncordon bool
	cmd := drainVerb(a, "cancel", "cancel what has not begun; the cordon stays unless --uncordon", "is canceled", func(ctx context.Context, ref string, o client.WriteOptions) (client.Response[api.DrainWriteReply], error) {
		return a.client().Drains.Cancel(ctx, ref, api.CancelBody{Uncordon: uncordon}, o)
	})
	cmd.Flags().BoolVar(&uncordon, "uncordon", false, "take new instances on its nodes again")
	return cmd
}
