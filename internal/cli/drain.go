package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

func drainID(d api.Drain) string { return string(d.ID) }

func (a *app) drainColumns() []term.Column[api.Drain] {
	return []term.Column[api.Drain]{
		{Head: "id", Cell: drainID},
		{Head: "phase", Cell: func(d api.Drain) string { return string(d.Phase) }},
		{Head: "nodes", Cell: func(d api.Drain) string {
			var names []string
			for _, n := range d.Nodes {
				names = append(names, n.Node)
			}
			return term.Joined(names)
		}},
		{Head: "moved", Cell: func(d api.Drain) string { return fmt.Sprint(goneOf(d).moved) }},
		{Head: "stopped", Wide: true, Cell: func(d api.Drain) string { return fmt.Sprint(goneOf(d).stopped) }},
		{Head: "remaining", Cell: func(d api.Drain) string { return fmt.Sprint(remaining(d)) }},
		{Head: "blockers", Cell: func(d api.Drain) string { return fmt.Sprint(blockers(d)) }},
		{Head: "acked", Cell: func(d api.Drain) string { return fmt.Sprint(acked(d)) }},
		{Head: "paused", Cell: func(d api.Drain) string { return term.YesNo(d.Paused) }},
		{Head: "age", Cell: func(d api.Drain) string { return a.Age(&d.CreatedAt) }},
		{Head: "actor", Wide: true, Cell: func(d api.Drain) string { return string(d.Actor) }},
		{Head: "message", Wide: true, Cell: func(d api.Drain) string { return d.Message }},
	}
}

// departed counts the instances that a drain has stopped and that are gone: those with a replacement, and those
// without.
type departed struct{ moved, stopped int }

// gone returns how many instances have left a node, and how many of the remaining ones stop. The API counts an instance
// in Moved as soon as the drain begins to stop it, and also in Stopped if it has no replacement. Here an instance is
// gone only once it is no longer on the node. A stop that the drain did not begin, such as that of a job, counts in
// neither.
func gone(n api.DrainNode) (left departed, stopping int) {
	left = departed{moved: n.Moved - n.Stopped, stopped: n.Stopped}
	for _, r := range n.Remaining {
		if r.InMoved || r.State == string(model.ObservedDraining) || r.Blocker == model.CodeStopping {
			stopping++
		}
		switch {
		case r.InStopped:
			left.stopped--
		case r.InMoved:
			left.moved--
		}
	}
	return departed{max(left.moved, 0), max(left.stopped, 0)}, stopping
}

// goneOf returns how many instances have left the nodes of a drain.
func goneOf(d api.Drain) (sum departed) {
	for _, n := range d.Nodes {
		left, _ := gone(n)
		sum.moved, sum.stopped = sum.moved+left.moved, sum.stopped+left.stopped
	}
	return sum
}

// acked returns how many instances stay on their nodes with the acknowledgement of an operator.
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
		Use: "ls", Aliases: []string{"list"}, Short: "list drains, oldest first", Args: term.Exactly(),
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
	return a.Show(term.Result{JSON: got.Raw, Names: []string{drainID(got.Value)}, Text: func(p *term.Page) {
		a.drainPage(p, got.Value)
	}})
}

func (a *app) drainPage(p *term.Page, d api.Drain) {
	phase := string(d.Phase)
	if d.Paused && d.Phase == model.PhaseDraining {
		phase += ", paused"
	}
	p.Fields(
		term.Field{"Id", drainID(d)}, term.Field{"Phase", phase}, term.Field{"Actor", string(d.Actor)},
		term.Field{"Message", d.Message},
		term.Field{"Started", term.Stamp(&d.CreatedAt)}, term.Field{"Options", optionsText(d.Options)},
	)
	p.Section("Nodes")
	left := func(n api.DrainNode) departed {
		one, _ := gone(n)
		return one
	}
	term.Rows(p, d.Nodes, []term.Column[api.DrainNode]{
		{Head: "node", Cell: func(n api.DrainNode) string { return n.Node }},
		{Head: "phase", Cell: func(n api.DrainNode) string { return string(n.Phase) }},
		{Head: "moved", Cell: func(n api.DrainNode) string { return fmt.Sprint(left(n).moved) }},
		{Head: "stopped", Cell: func(n api.DrainNode) string { return fmt.Sprint(left(n).stopped) }},
		{Head: "remaining", Cell: func(n api.DrainNode) string { return fmt.Sprint(len(n.Remaining)) }},
		{Head: "acked", Cell: func(n api.DrainNode) string { return fmt.Sprint(n.Acked) }},
		{Head: "started", Cell: func(n api.DrainNode) string { return term.Stamp(n.StartedAt) }},
		{Head: "deadline", Cell: deadlineText},
		{Head: "last error", Cell: func(n api.DrainNode) string { return n.LastError }},
	})
	for _, n := range d.Nodes {
		drainLeft(p, n)
	}
}

// drainLeft shows which instances are left on a node, and why. With -o wide, it lists every instance and every blocker.
// Otherwise it shows each reason for a blocker once, and it lists at most listedAtMost instances: if more are left, it
// counts those with the same class, state and blocker.
func drainLeft(p *term.Page, n api.DrainNode) {
	if len(n.Remaining) > 0 {
		p.Section("Left on %s", n.Node)
	}
	switch {
	case len(n.Remaining) == 0:
	case len(n.Remaining) <= listedAtMost || p.Wide:
		term.Rows(p, n.Remaining,
			append([]term.Column[api.DrainRemaining]{{Head: "instance", Cell: func(r api.DrainRemaining) string {
				return string(r.Instance)
			}}}, remainingColumns()...))
	default:
		alike := map[api.DrainRemaining]int{}
		var kinds []api.DrainRemaining
		for _, r := range n.Remaining {
			r.Instance, r.InMoved, r.InStopped = "", false, false
			if alike[r]++; alike[r] == 1 {
				kinds = append(kinds, r)
			}
		}
		term.Rows(p, kinds,
			append([]term.Column[api.DrainRemaining]{{Head: "instances", Cell: func(r api.DrainRemaining) string {
				return fmt.Sprint(alike[r])
			}}}, remainingColumns()...))
		p.Line("  each instance: -o wide")
	}
	if len(n.Blockers) == 0 {
		return
	}
	p.Section("Blockers on %s", n.Node)
	if p.Wide {
		term.Rows(p, n.Blockers, []term.Column[api.DrainBlocker]{
			{Head: "code", Cell: func(b api.DrainBlocker) string { return string(b.Code) }},
			{Head: "instance", Cell: func(b api.DrainBlocker) string { return string(b.Instance) }},
			{Head: "volume", Cell: func(b api.DrainBlocker) string { return string(b.Volume) }},
			{Head: "message", Cell: func(b api.DrainBlocker) string { return b.Message }},
			{Head: "unblock", Cell: func(b api.DrainBlocker) string { return b.Unblock }},
		})
		return
	}
	term.Rows(p, sumsOf(n.Blockers), []term.Column[model.BlockerSum]{
		{Head: "code", Cell: func(s model.BlockerSum) string { return string(s.Code) }},
		{Head: "instance", Cell: func(s model.BlockerSum) string { return strings.TrimPrefix(s.Who(), "instance ") }},
		{Head: "volume", Cell: func(s model.BlockerSum) string { return strings.TrimPrefix(s.What(), "volume ") }},
		{Head: "message", Cell: func(s model.BlockerSum) string { return s.Message }},
		{Head: "unblock", Cell: func(s model.BlockerSum) string { return s.Unblock }},
	})
}

func remainingColumns() []term.Column[api.DrainRemaining] {
	return []term.Column[api.DrainRemaining]{
		{Head: "class", Cell: func(r api.DrainRemaining) string { return string(r.Class) }},
		{Head: "state", Cell: func(r api.DrainRemaining) string { return r.State }},
		{Head: "blocker", Cell: func(r api.DrainRemaining) string { return string(r.Blocker) }},
	}
}

func deadlineText(n api.DrainNode) string {
	switch {
	case n.Deadline != nil:
		return term.Stamp(n.Deadline)
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
		{len(o.AcceptDowntime) > 0, "accept downtime of " + term.Joined(o.AcceptDowntime)},
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
		Use: "watch DRAIN", Short: "follow a drain until it has ended", Args: term.Exactly("DRAIN"),
		ValidArgsFunction: a.complete("drains"),
		Long: "Follows a drain until it has ended: a line for each change. Exit codes: 0 drained, 22 " +
			"failed, 23 --timeout.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !a.Output.Machine() {
				return a.followDrain(cmd.Context(), args[0], &until)
			}
			end, failed := a.watchDrain(cmd.Context(), args[0], &until, a.Note)
			if end == nil {
				return failed
			}
			s, err := term.ResultOf(*end, []string{drainID(*end)}, nil)
			if err == nil {
				err = a.Show(s)
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

type drainWrite func(client.Drains, context.Context, string,
	client.WriteOptions) (client.Response[api.DrainWriteReply], error)

// drainVerb makes a command for a write to one drain.
func drainVerb(a *app, verb, short, done string, do drainWrite) *cobra.Command {
	return oneChange{noun: "drain", verb: verb, short: short, arg: "DRAIN", kind: "drains", done: done,
		do: func(ctx context.Context, ref string, o client.WriteOptions) (changed, error) {
			got, err := do(a.client().Drains, ctx, ref, o)
			if got.Value.Drain != nil {
				ref = drainID(*got.Value.Drain)
			}
			return changed{got.Raw, ref, got.Value.Index}, err
		}}.command(a)
}

func drainPause(a *app) *cobra.Command {
	return drainVerb(a, "pause", "begin no more evictions for now; the deadline goes on", "is paused", client.Drains.Pause)
}

func drainResume(a *app) *cobra.Command {
	return drainVerb(a, "resume", "go on with a paused drain", "goes on", client.Drains.Resume)
}

func drainCancel(a *app) *cobra.Command {
	var uncordon bool
	do := func(c client.Drains, ctx context.Context, ref string,
		o client.WriteOptions) (client.Response[api.DrainWriteReply], error) {
		return c.Cancel(ctx, ref, api.CancelBody{Uncordon: uncordon}, o)
	}
	cmd := drainVerb(a, "cancel", "cancel what has not begun; its nodes take no instances unless --uncordon",
		"is canceled", do)
	cancel := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := cancel(cmd, args)
		if err == nil && !uncordon {
			a.Note("its nodes stay draining and take no new instances, until: outspan node uncordon NODE")
		}
		return err
	}
	cmd.Flags().BoolVar(&uncordon, "uncordon", false, "take new instances on its nodes again")
	return cmd
}
