package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// drainFlags are the flags of node drain.
type drainFlags struct {
	write    writeFlags
	until    waitFlags
	body     api.DrainBody
	deadline term.DurationFlag
	selector string
	order    string
	detach   bool
}

func (f *drainFlags) register(cmd *cobra.Command) {
	f.write.register(cmd, "show the forecast, change nothing; exit code 21 if the drain could not end by itself")
	fs, c := cmd.Flags(), &f.body.DrainChoices
	f.deadline.Value = new(model.Duration)
	fs.Var(&f.deadline, "deadline", "for each node, from its turn: 1h, or none (default: the setting drain_deadline)")
	fs.BoolVar(&f.detach, "detach", false, "return once the drain has started, instead of following it")
	fs.BoolVar(&c.Force, "force", false, "also stop what its role says never to stop; recorded")
	fs.BoolVar(&c.ForceAtDeadline, "force-at-deadline", false, "kill what is left at the deadline")
	fs.StringSliceVar(&c.AcceptDowntime, "accept-downtime", nil,
		"stop instances of JOB/GROUP even where no replacement fits (without a value: of every group); recorded")
	fs.Lookup("accept-downtime").NoOptDefVal = "*"
	fs.BoolVar(&c.IgnoreSystem, "ignore-system", false, "leave instances of system groups alone")
	fs.IntVar(&c.MaxParallelNodes, "max-parallel-nodes", 0, "how many nodes at once; 0: all")
	fs.StringVar(&c.Policy, "policy", "", "instead of the setting node_drain_policy")
	fs.StringVar((*string)(&c.ID), "id", "",
		"id of the drain; asked again with the same id it gives the same answer (default: a new one)")
	fs.StringVarP(&c.Message, "message", "m", "", "why, for people")
	fs.StringVar(&f.selector, "selector", "", "instead of names: all nodes with these labels, k=v,...")
	fs.StringVar(&f.order, "order", "given", "in which order: given, name, fewest or most (instances)")
	f.until.register(cmd, "drained", "started")
	// no error is possible: the flags exist
	_ = cmd.RegisterFlagCompletionFunc("policy", completeWords(model.DrainPolicies()...))
	_ = cmd.RegisterFlagCompletionFunc("order", completeWords("given", "name", "fewest", "most"))
}

// checkWait treats --wait=started as --detach, and --wait=drained as the default. It refuses other states.
func (f *drainFlags) checkWait() error {
	switch f.until.state {
	case "", "drained":
	case "started":
		f.detach = true
	default:
		return term.Usage("--wait=%s: a drain has no such state to wait for", f.until.state).
			WithHint("use drained or started")
	}
	return nil
}

func nodeDrain(a *app) *cobra.Command {
	var f drainFlags
	cmd := &cobra.Command{
		Use: "drain NODE...", Short: "empty nodes without losing anything, and follow that",
		ValidArgsFunction: a.complete("nodes"),
		Long: `Takes no new instances on the nodes, starts replacements elsewhere, and stops what runs there when they are ready. It returns once
the drain has started, and then follows it: a line for each change. Ctrl-C stops following only.

Exit codes: 0 all drained; 21 (with --dry-run) it could not end by itself; 22 a node ended Failed; 23 --timeout.`,
		Example: "outspan node drain n7 --dry-run\noutspan node drain n7 n8 --max-parallel-nodes 1 -m 'new " +
			"kernel'\noutspan node drain --selector rack=r1 --order fewest --deadline none --detach",
		RunE: func(cmd *cobra.Command, args []string) error { return a.drainNodes(cmd.Context(), args, &f) },
	}
	f.register(cmd)
	return cmd
}

func (a *app) drainNodes(ctx context.Context, nodes []string, f *drainFlags) error {
	if err := f.checkWait(); err != nil {
		return err
	}
	if err := a.chooseNodes(ctx, nodes, f); err != nil {
		return err
	}
	if f.deadline.Given {
		f.body.Deadline = f.deadline.Value
	}
	if f.write.requestID == "" { // so that a repeated command with the same --id gets the same answer
		f.write.requestID = string(f.body.ID)
	}
	got, err := a.client().Drains.Start(ctx, f.body, f.write.options())
	if err != nil {
		return err
	}
	switch {
	case f.write.dryRun:
		return cmp.Or(a.showDrainReply(got, f), stuckForecast(got.Value))
	case f.detach || got.Value.Drain == "":
		return cmp.Or(a.showDrainReply(got, f), rejected(got.Value))
	case a.Output.Machine():
		return cmp.Or(a.followQuietly(ctx, got, f), rejected(got.Value))
	}
	if err := a.showDrainReply(got, f); err != nil {
		return err
	}
	return cmp.Or(a.followDrain(ctx, string(got.Value.Drain), &f.until), rejected(got.Value))
}

// chooseNodes sets in f.body which nodes are drained: their names in order, or the labels by which the servers select
// them. It refuses unknown nodes, and flags that exclude each other.
func (a *app) chooseNodes(ctx context.Context, nodes []string, f *drainFlags) error {
	labels, err := parseLabels(f.selector)
	switch {
	case err != nil:
		return err
	case len(nodes) == 0 && len(labels) == 0:
		return term.Usage("no node is given").WithHint("write: outspan node drain NODE..., or --selector k=v")
	case len(nodes) > 0 && len(labels) > 0:
		return term.Usage("nodes and --selector are both given").WithHint("give one of them")
	case f.order == "given" || f.order == "name" && len(labels) > 0:
		f.body.Nodes, f.body.Selector = nodes, labels
		return a.checkNodes(ctx, nodes)
	case f.order != "name" && f.order != "fewest" && f.order != "most":
		return term.Usage("--order %q is unknown", f.order).WithHint("use given, name, fewest or most")
	}
	known, err := a.client().Nodes.List(ctx, client.ListOptions{})
	if err != nil {
		return err
	}
	if err := a.checkNodes(ctx, nodes); err != nil {
		return err
	}
	f.body.Nodes = orderNodes(known.Items, nodes, labels, f.order)
	if len(f.body.Nodes) == 0 {
		return model.Refuse(model.CodeNotFound, "no node has these labels").
			WithHint("list them with: outspan node ls -o wide")
	}
	return nil
}

// orderNodes sorts the nodes in named, or else the nodes that have all the labels and are not disabled. The orders
// fewest and most sort by the number of instances. Any other order sorts by name. Unknown nodes are last; the servers
// reject them.
func orderNodes(known []api.Node, named []string, labels map[string]string, order string) []string {
	byRef := map[string]api.Node{}
	for _, n := range known {
		byRef[n.Name], byRef[string(n.ID)] = n, n
		matches := len(labels) > 0 && n.Intent != model.IntentDisabled
		for k, v := range labels {
			matches = matches && n.Labels[k] == v
		}
		if matches {
			named = append(named, n.Name)
		}
	}
	rank := func(ref string) (int, string) {
		n, ok := byRef[ref]
		switch {
		case !ok:
			return 1 << 30, ref
		case order == "fewest":
			return n.Instances, n.Name
		case order == "most":
			return -n.Instances, n.Name
		}
		return 0, n.Name
	}
	named = slices.Clone(named)
	slices.SortStableFunc(named, func(x, y string) int {
		xr, xn := rank(x)
		yr, yn := rank(y)
		return cmp.Or(cmp.Compare(xr, yr), cmp.Compare(xn, yn))
	})
	return named
}

func (a *app) showDrainReply(got client.Response[api.DrainReply], f *drainFlags) error {
	r := got.Value
	return a.Show(term.Result{JSON: got.Raw, Names: []string{string(r.Drain)}, Text: func(p *term.Page) {
		drainReplyPage(p, r, f)
	}})
}

func drainReplyPage(p *term.Page, r api.DrainReply, f *drainFlags) {
	what := fmt.Sprintf("drain %s started on", r.Drain)
	if f.write.dryRun {
		what = "a drain would start on"
	}
	p.Line("%s %s %s", what, term.Joined(r.Started), f.write.done(r.Index))
	for _, one := range r.Rejected {
		p.Line("rejected: %s: %s (%s)", one.Node, one.Message, one.Code)
	}
	if len(r.Forecast) == 0 {
		p.Line("nothing has to move")
		return
	}
	p.Section("Forecast")
	forecastTable(p, r.Forecast)
	forecastReasons(p, "  ", r.Forecast)
	if stuckForecast(r) != nil {
		p.Line("this drain can't end by itself")
	}
	p.Line("%s", forecastSums(r.Forecast))
}

// forecastTable lists what happens to each instance. If there are more than listedAtMost instances, it lists outcomes
// instead, each with its number of instances, unless -o wide was given.
func forecastTable(p *term.Page, forecast []api.DrainForecast) {
	if len(forecast) <= listedAtMost || p.Wide {
		columns := forecastColumns(func(f api.DrainForecast) api.DrainForecast { return f })
		term.Rows(p, forecast,
			slices.Insert(columns, 1, term.Column[api.DrainForecast]{Head: "instance", Cell: func(f api.DrainForecast) string {
				return string(f.Instance)
			}}))
		return
	}
	columns := forecastColumns(func(f forecastCount) api.DrainForecast { return f.DrainForecast })
	term.Rows(p, countForecast(forecast),
		slices.Insert(columns, 1, term.Column[forecastCount]{Head: "instances", Cell: func(f forecastCount) string {
			return fmt.Sprint(f.count)
		}}))
	p.Line("  each instance: -o wide")
}

func forecastColumns[T any](of func(T) api.DrainForecast) []term.Column[T] {
	return []term.Column[T]{
		{Head: "node", Cell: func(t T) string { return of(t).Node }},
		{Head: "group", Cell: func(t T) string { return string(of(t).Group) }},
		{Head: "class", Cell: func(t T) string { return classText(of(t)) }},
		{Head: "action", Cell: func(t T) string { return string(of(t).Action) }},
		{Head: "target", Cell: func(t T) string { return of(t).Target }},
		{Head: "blocker", Cell: func(t T) string { return string(of(t).Blocker) }},
	}
}

// stuckForecast returns an error with exit code 21 if the drain can't complete without help, because some instance
// never leaves or fits on no node.
func stuckForecast(r api.DrainReply) error {
	for _, one := range r.Forecast {
		if one.Never || strings.HasPrefix(string(one.Blocker), string(model.Unschedulable(""))) {
			return term.Quiet{Code: term.ExitNotAllPlaced}
		}
	}
	return nil
}

// rejected returns an error if the drain has started without some of the named nodes.
func rejected(r api.DrainReply) error {
	if len(r.Rejected) == 0 {
		return nil
	}
	one := r.Rejected[0]
	return model.Refuse(one.Code, "node %s was not taken into the drain: %s", one.Node, one.Message).
		WithHint("the other nodes are in drain %s", r.Drain)
}

// drainResult is the JSON of a drain that was followed: the reply to the start, and the drain as it was last read.
type drainResult struct {
	api.DrainReply
	Result *api.Drain `json:"result"`
}

// followQuietly follows a drain for a program. It prints the result once, at the end, and reports progress on stderr.
// If no read of the drain succeeded, it prints no result, unless --timeout expired.
func (a *app) followQuietly(ctx context.Context, got client.Response[api.DrainReply], f *drainFlags) error {
	end, failed := a.watchDrain(ctx, string(got.Value.Drain), &f.until, a.Note)
	if failed != nil && end == nil {
		var known *model.Error
		if !errors.As(failed, &known) || known.Code != codeWaitTimedOut {
			return failed
		}
	}
	s, err := term.ResultOf(drainResult{got.Value, end}, []string{string(got.Value.Drain)}, nil)
	if err != nil {
		return err
	}
	return cmp.Or(a.Show(s), failed)
}

// nodesThat returns the names of a drain's nodes in the given phase, separated by spaces.
func nodesThat(d api.Drain, phase model.DrainPhase) string {
	var names []string
	for _, n := range d.Nodes {
		if n.Phase == phase {
			names = append(names, n.Node)
		}
	}
	return strings.Join(names, " ")
}

// drainEnded returns an error if the drain has failed or was canceled, else nil. The error's code selects the exit
// code.
func drainEnded(d api.Drain) error {
	switch d.Phase {
	case model.PhaseFailed:
		var why []string
		for _, n := range d.Nodes {
			if n.Phase == model.PhaseFailed {
				why = append(why, fmt.Sprintf("%s: %s", n.Node, n.LastError))
			}
		}
		return model.Refuse(codeEndedFailed, "drain %s failed: %s", d.ID, strings.Join(why, "; ")).
			WithHint("its nodes take no new instances; remove what blocks and start a new drain, or: outspan node uncordon %s",
				nodesThat(d, model.PhaseFailed))
	case model.PhaseCanceled:
		return model.Refuse(codeCanceled, "drain %s was canceled", d.ID).
			WithHint("unless it was canceled with --uncordon, its nodes take no new instances before: outspan node uncordon %s",
				nodesThat(d, model.PhaseCanceled))
	}
	return nil
}

// classText returns the data class of an instance for people. It is "member" for an instance that has no volumes and
// keeps its identity, because the instance may have data outside volumes.
func classText(f api.DrainForecast) string {
	if f.Member != "" && f.Class == model.Stateless {
		return "member"
	}
	return string(f.Class)
}

func nodeAckBlockers(a *app) *cobra.Command {
	var write writeFlags
	cmd := &cobra.Command{
		Use: "ack-blockers NODE [INSTANCE...]", Short: "accept that instances stay running on a draining node",
		Args: term.AtLeast(1), ValidArgsFunction: a.complete("nodes", "instances"),
		Long: "Accepts that instances stay running on a draining node, so that its drain can end. Without instances: all " +
			"that block now.",
		RunE: func(cmd *cobra.Command, args []string) error {
			var body api.AckBody
			for _, id := range args[1:] {
				body.Instances = append(body.Instances, model.InstanceID(id))
			}
			got, err := a.client().Nodes.AckBlockers(cmd.Context(), args[0], body, write.options())
			if err != nil {
				return err
			}
			slots := a.slotsOn(cmd.Context(), repliedNode(got.Value))
			return a.Show(term.Result{JSON: got.Raw, Names: []string{term.First(repliedNode(got.Value), args[0])},
				Text: func(p *term.Page) {
					ackedPage(p, got.Value, args[0], slots, &write)
				}})
		},
	}
	write.register(cmd, "check only, change nothing")
	return cmd
}

// slotsOn describes the slot of each instance on a node, by the instance's id. The result is empty if node is "", if
// the output is for a program, or if the servers don't answer.
func (a *app) slotsOn(ctx context.Context, node string) map[model.InstanceID]string {
	slots := map[model.InstanceID]string{}
	if node == "" || a.Output.Machine() {
		return slots
	}
	found, err := a.client().Instances.List(ctx, client.InstanceListOptions{Node: node})
	if err != nil {
		return slots // the write succeeded, so show its outcome even without slots
	}
	for _, i := range found.Items {
		slots[i.ID] = fmt.Sprintf("%s slot %d", model.NewGroupID(i.Job, i.Group), i.Slot)
	}
	return slots
}

// ackedPage lists the instances that stay running on a draining node because this command or an earlier one
// acknowledged them.
func ackedPage(p *term.Page, r api.NodeReply, ref string, slots map[model.InstanceID]string, write *writeFlags) {
	if r.Node == nil || len(r.Node.Acked) == 0 {
		p.Line("nothing blocks on node %s: nothing is acknowledged %s", term.First(repliedNode(r), ref), write.done(r.Index))
		return
	}
	verb := "has its blockers acknowledged"
	if write.dryRun {
		verb = "would have its blockers acknowledged"
	}
	p.Line("node %s %s %s; these stay running:", r.Node.Name, verb, write.done(r.Index))
	for n, id := range r.Node.Acked {
		if n == listedAtMost && !p.Wide {
			p.Line("  %d more: -o wide", len(r.Node.Acked)-n)
			break
		}
		p.Line("%s", strings.TrimRight("  "+string(id)+"  "+slots[id], " "))
	}
}
