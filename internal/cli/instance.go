package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

func instanceID(i api.Instance) string { return string(i.ID) }

func bySlot(x, y api.Instance) int {
	return cmp.Or(cmp.Compare(x.Job, y.Job), cmp.Compare(x.Group, y.Group), cmp.Compare(x.Slot, y.Slot),
		x.CreatedAt.Compare(y.CreatedAt), cmp.Compare(x.ID, y.ID))
}

func (a *app) instanceColumns() []term.Column[api.Instance] {
	return []term.Column[api.Instance]{
		{Head: "id", Of: "id", Cell: instanceID},
		{Head: "group", Of: "job,group", Cell: func(i api.Instance) string { return string(i.Job) + "/" + i.Group }},
		{Head: "slot", Of: "slot", Cell: func(i api.Instance) string { return fmt.Sprint(i.Slot) }},
		{Head: "node", Of: "node", Cell: func(i api.Instance) string { return i.Node }},
		{Head: "desired", Of: "desired", Cell: func(i api.Instance) string { return string(i.Desired) }},
		{Head: "observed", Of: "observed", Cell: func(i api.Instance) string { return string(i.Observed) }},
		{Head: "version", Of: "version", Cell: func(i api.Instance) string { return fmt.Sprint(i.Version) }},
		{Head: "age", Of: "created_at", Cell: func(i api.Instance) string { return a.Age(&i.CreatedAt) }},
		{Head: "cause", Of: "cause", Wide: true, Cell: func(i api.Instance) string { return string(i.Cause) }},
		{Head: "restarts", Of: "restarts", Wide: true, Cell: func(i api.Instance) string { return fmt.Sprint(i.Restarts) }},
		{Head: "ports", Of: "ports,address", Wide: true, Cell: portsText},
		{Head: "volume", Of: "volume", Wide: true, Cell: func(i api.Instance) string { return i.Volume }},
		{Head: "evicting", Of: "eviction", Wide: true, Cell: func(i api.Instance) string { return evictionText(i.Eviction) }},
		{Head: "replaces", Of: "replaces", Wide: true, Cell: func(i api.Instance) string { return string(i.Replaces) }},
		{Head: "reason", Of: "reason,stop_cause", Cell: reasonText},
	}
}

func portsText(i api.Instance) string {
	var parts []string
	for name, port := range i.Ports {
		parts = append(parts, fmt.Sprintf("%s=%s:%d", name, i.Address, port))
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

func evictionText(e api.Eviction) string {
	if !e.Requested && !e.Preparing {
		return ""
	}
	text := string(e.Cause)
	if e.Preparing {
		text += ", preparing"
	}
	if len(e.WaitingFor) > 0 {
		var codes []string
		for _, c := range e.WaitingFor {
			codes = append(codes, string(c))
		}
		text += ", waits for " + term.Joined(codes)
	}
	return strings.TrimPrefix(text, ", ")
}

func factsText(i api.Instance) string {
	var parts []string
	for name, value := range i.Facts {
		parts = append(parts, name+"="+value)
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func instanceLs(a *app) *cobra.Command {
	var filter listFlags
	var choice client.InstanceListOptions
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list instances", Args: term.Exactly(),
		Example: "outspan instance ls --job web\noutspan instance ls --node n7 -o wide\n" +
			"outspan instance ls --filter observed=failed -o name",
		RunE: func(cmd *cobra.Command, _ []string) error {
			choice.ListOptions = filter.options()
			choice.Fields = fieldsFor(a, a.instanceColumns())
			got, err := a.client().Instances.List(cmd.Context(), choice)
			if err != nil {
				return err
			}
			return showList(a, sorted(got, bySlot), instanceID, a.instanceColumns())
		},
	}
	filter.register(cmd)
	cmd.Flags().StringVar(&choice.Job, "job", "", "only of this job")
	cmd.Flags().StringVar(&choice.Group, "group", "", "with --job: only of this group")
	cmd.Flags().StringVar(&choice.Node, "node", "", "only on this node")
	cmd.Flags().BoolVar(&choice.All, "all", false, "also those that ended")
	return cmd
}

func instanceStatus(a *app) *cobra.Command {
	return statusVerb{
		of: "INSTANCE", short: "show an instance", kind: "instances",
		example: "outspan instance status 3k9f\noutspan instance status 3k9f --wait=stopped --timeout 30s",
		states:  []string{"ready", "pending", "booting", "unready", "draining", "stopped", "failed", "lost"},
		wait:    a.waitForInstance, show: a.showInstance,
	}.command(a)
}

func (a *app) showInstance(ctx context.Context, ref string) error {
	got, err := a.client().Instances.Get(ctx, ref, client.ReadOptions{})
	if err != nil {
		return err
	}
	return a.Show(term.Result{JSON: got.Raw, Names: []string{instanceID(got.Value)}, Text: func(p *term.Page) {
		a.instancePage(p, got.Value)
	}})
}

func (a *app) instancePage(p *term.Page, i api.Instance) {
	exit := ""
	if i.ExitCode != nil {
		exit = fmt.Sprint(*i.ExitCode)
	}
	p.Fields(
		term.Field{"Id", instanceID(i)}, term.Field{"Group", string(i.Job) + "/" + i.Group},
		term.Field{"Slot", fmt.Sprint(i.Slot)},
		term.Field{"Version", fmt.Sprint(i.Version)}, term.Field{"Node", i.Node}, term.Field{"Class", string(i.Class)},
		term.Field{"Desired", string(i.Desired)}, term.Field{"Observed", string(i.Observed)},
		term.Field{"Reason", reasonText(i)},
		term.Field{"Cause", string(i.Cause)}, term.Field{"Stop cause", string(i.StopCause)},
		term.Field{"Evicting", evictionText(i.Eviction)},
		term.Field{"Not prepared", i.Eviction.Failure}, term.Field{"Facts", factsText(i)},
		term.Field{"Replaces", string(i.Replaces)}, term.Field{"Replaced by", string(i.ReplacedBy)},
		term.Field{"Exit code", exit},
		term.Field{"Restarts", term.Number(i.Restarts)}, term.Field{"Ports", portsText(i)}, term.Field{"Volume", i.Volume},
		term.Field{"CPU", fmt.Sprintf("%d shares", i.Resources.CPU)},
		term.Field{"Memory", model.SizeText(i.Resources.MemoryBytes) + " with overhead"},
		term.Field{"Disk", diskLimitText(i.Disk)}, term.Field{"Deployment", string(i.Deployment)},
		term.Field{"Created", term.Stamp(&i.CreatedAt)}, term.Field{"Started", term.Stamp(i.StartedAt)},
		term.Field{"Index", term.Number(i.Index)},
	)
}

// diskLimitText describes an instance's disk limit, or returns "" if the instance has no limit. If the instance uses
// more than its limit, the text also says how much it uses and what happens next.
func diskLimitText(d api.InstanceDisk) string {
	switch {
	case d.LimitBytes == 0:
		return ""
	case !d.Above:
		return "limit " + model.SizeText(d.LimitBytes)
	}
	about := ""
	if d.AtLeast {
		about = "at least "
	}
	return fmt.Sprintf("%s%s, above its limit of %s; %s", about, model.SizeText(d.UsedBytes),
		model.SizeText(d.LimitBytes), d.Next)
}

func instanceWhy(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "why INSTANCE", Short: "explain how an instance came to its state, and what comes next",
		Args: term.Exactly("INSTANCE"), ValidArgsFunction: a.complete("instances"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := a.client().Instances.Why(cmd.Context(), args[0], client.ReadOptions{})
			if err != nil {
				return err
			}
			return a.showWhy(got)
		},
	}
}

// instanceVerb is one of the commands that change a single instance: evict, stop and restart.
type instanceVerb struct {
	write writeFlags
	until waitFlags
	verb  string
	done  string
	body  api.EvictBody // the request of evict and stop; a restart has no body
}

func (v *instanceVerb) run(ctx context.Context, a *app, ref string) error {
	got, err := v.call(ctx, a.client().Instances, ref)
	if err != nil {
		return err
	}
	id := ref
	if got.Value.Instance != nil {
		id = instanceID(*got.Value.Instance)
	}
	switch i := got.Value.Instance; {
	case v.write.dryRun:
	case v.verb == "restart" && i != nil:
		err = a.waitForRestart(ctx, i, &v.until)
	default:
		err = a.waitForInstance(ctx, id, &v.until)
	}
	if err != nil {
		return err
	}
	done := v.done
	if i := got.Value.Instance; v.verb != "restart" && i != nil && i.Desired == model.DesiredRunning && !v.write.dryRun {
		done = "is to be stopped: " + awaitsText(i)
	}
	if i := got.Value.Instance; v.write.dryRun && v.verb != "restart" && i != nil {
		done = fmt.Sprintf("(%s/%s, slot %d, on node %s) would be %s", i.Job, i.Group, i.Slot, i.Node,
			strings.TrimPrefix(done, "is "))
	}
	if v.body.Cancel && got.Value.Instance != nil {
		done = canceledText(got.Value.Instance, got.Value.AvoidEnded)
	}
	return a.Show(term.Result{JSON: got.Raw, Names: []string{id}, Text: func(p *term.Page) {
		p.Line("instance %s %s %s", id, done, v.write.done(got.Value.Index))
		if until := got.Value.AvoidUntil; until != nil {
			i := got.Value.Instance
			p.Line("all of %s/%s avoids node %s until %s; take that back with: outspan instance evict %s --cancel", i.Job,
				i.Group, i.Node, term.Stamp(until), id)
		}
	}})
}

func (v *instanceVerb) call(ctx context.Context, instances client.Instances,
	ref string) (client.Response[api.InstanceReply], error) {
	switch v.verb {
	case "evict":
		return instances.Evict(ctx, ref, v.body, v.write.options())
	case "stop":
		return instances.Stop(ctx, ref, v.body, v.write.options())
	}
	return instances.Restart(ctx, ref, v.write.options())
}

// canceledText describes an instance after the command "instance evict --cancel". If avoidEnded is true, the group no
// longer avoids the instance's node.
func canceledText(i *api.Instance, avoidEnded bool) string {
	text := "has been told to stop"
	switch {
	case i.Desired == model.DesiredRunning && !i.Eviction.Requested:
		text = "stays: it is not to be evicted"
	case i.Desired == model.DesiredRunning:
		text = "is still to be stopped, for " + string(i.Eviction.Cause)
	}
	if avoidEnded {
		text += fmt.Sprintf("; %s/%s avoids node %s no longer, whichever instance's eviction asked for that",
			i.Job, i.Group, i.Node)
	}
	return text
}

// awaitsText describes what a requested eviction waits for before it stops the instance.
func awaitsText(i *api.Instance) string {
	switch {
	case i.Eviction.Preparing:
		return "what must come before that has begun, its before_stop hook or a last look at its gates"
	case i.Eviction.Surge:
		return "it stops when its replacement is ready"
	}
	return "it stops when its copy is in sync elsewhere"
}

func instanceEvict(a *app) *cobra.Command {
	v := instanceVerb{verb: "evict", done: "is evicted"}
	var grace term.DurationFlag
	cmd := &cobra.Command{
		Use: "evict INSTANCE", Short: "stop an instance if its budget allows it; it is replaced",
		Args: term.Exactly("INSTANCE"), ValidArgsFunction: a.complete("instances"),
		Long: "Stops an instance if its budget allows it, or says what it waits for (code budget_min_ready or budget_rate, " +
			"exit code 6: try again later).\n\n" +
			"Its replacement is made after it has stopped; with --surge, in a group that replaces first, it goes on until its " +
			"replacement is ready.\n\n" +
			"A replica of a replicated group goes on until another copy of its data is in sync on another node, and is " +
			"stopped then. --cancel takes back what goes on.\n\n" +
			"With --avoid no new instance of its group goes to its node for an hour if another node will do. --cancel takes " +
			"that back too, also when the instance has stopped.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if grace.Given {
				v.body.Grace = grace.Value
			}
			return v.run(cmd.Context(), a, args[0])
		},
	}
	grace.Value = new(model.Duration)
	v.write.register(cmd, "say whether it would be allowed, change nothing")
	v.until.register(cmd, "stopped")
	cmd.Flags().Var(&grace, "grace", "time between the stop signal and the kill, instead of the group's")
	cmd.Flags().
		BoolVar(&v.body.Avoid, "avoid", false, "for an hour its whole group goes to this node only if no other will do")
	cmd.Flags().BoolVar(&v.body.Surge, "surge", false, "stop it when its replacement is ready")
	cmd.Flags().
		BoolVar(&v.body.Cancel, "cancel", false,
			"take back that it is to be evicted (of a replica, or after --surge), and that its group avoids the node "+
				"(after --avoid)")
	cmd.Flags().StringVarP(&v.body.Message, "message", "m", "", "why, for people")
	return cmd
}

func instanceStop(a *app) *cobra.Command {
	v := instanceVerb{verb: "stop", done: "is stopped"}
	grace := term.DurationFlag{Value: new(model.Duration)}
	cmd := &cobra.Command{
		Use: "stop INSTANCE", Short: "stop an instance; it is replaced", Args: term.Exactly("INSTANCE"),
		ValidArgsFunction: a.complete("instances"),
		Long: "Stops an instance under its budget, as evict does. --bypass-budget stops it whatever its budget or role " +
			"says; that is recorded.\n\n" +
			"What was replaced while its node was silent ends there within its grace when the node is back; --grace 0s " +
			"ends it at once.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if grace.Given {
				v.body.Grace = grace.Value
			}
			return v.run(cmd.Context(), a, args[0])
		},
	}
	v.write.register(cmd, "say whether it would be allowed, change nothing")
	v.until.register(cmd, "stopped")
	cmd.Flags().Var(&grace, "grace", "time between the stop signal and the kill, instead of the group's")
	cmd.Flags().
		BoolVar(&v.body.BypassBudget, "bypass-budget", false, "stop it although a budget or its role forbids it; recorded")
	cmd.Flags().StringVarP(&v.body.Message, "message", "m", "", "why, for people")
	return cmd
}

func instanceRestart(a *app) *cobra.Command {
	v := instanceVerb{verb: "restart", done: "is restarted in place"}
	cmd := &cobra.Command{
		Use: "restart INSTANCE", Short: "restart the program in place", Args: term.Exactly("INSTANCE"),
		ValidArgsFunction: a.complete("instances"),
		RunE:              func(cmd *cobra.Command, args []string) error { return v.run(cmd.Context(), a, args[0]) },
	}
	v.write.register(cmd, "check only, change nothing")
	v.until.register(cmd, "ready")
	return cmd
}
