package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

func nodeName(n api.Node) string { return n.Name }

// nodeState returns a node's state for people. If the node drain policy, and not a person, has requested the eviction
// of instances on the node, nodeState adds ",auto-evicting" (L22). While the node is draining and its drain has ended,
// nodeState adds how the drain ended, such as ",drained".
func nodeState(n api.Node) string {
	text := string(n.State)
	if n.AutoEvicting {
		text += ",auto-evicting"
	}
	if n.State == model.NodeDraining && n.DrainPhase != "" && n.DrainPhase != model.PhaseDraining {
		text += "," + string(n.DrainPhase)
	}
	return text
}

func byNodeName(x, y api.Node) int { return cmp.Compare(x.Name, y.Name) }

func (a *app) nodeColumns() []term.Column[api.Node] {
	return []term.Column[api.Node]{
		{Head: "name", Of: "name", Cell: nodeName},
		{Head: "id", Of: "id", Cell: func(n api.Node) string { return string(n.ID) }},
		{Head: "state", Of: "state,auto_evicting,drain_phase", Cell: nodeState},
		{Head: "eligible", Of: "eligible", Cell: func(n api.Node) string { return term.YesNo(n.Eligible) }},
		{Head: "instances", Of: "instances", Cell: func(n api.Node) string { return fmt.Sprint(n.Instances) }},
		{Head: "cpu", Of: "allocated,capacity", Cell: func(n api.Node) string {
			return fmt.Sprintf("%d/%d", n.Allocated.CPU, n.Capacity.CPU)
		}},
		{Head: "memory", Of: "allocated,capacity", Cell: func(n api.Node) string {
			return model.SizeText(n.Allocated.MemoryBytes) + "/" + model.SizeText(n.Capacity.MemoryBytes)
		}},
		{Head: "last seen", Of: "last_seen", Cell: func(n api.Node) string { return a.Age(n.LastSeen) }},
		{Head: "address", Of: "address", Wide: true, Cell: func(n api.Node) string { return n.Address }},
		{Head: "intent", Of: "intent", Wide: true, Cell: func(n api.Node) string { return string(n.Intent) }},
		{Head: "health", Of: "health", Wide: true, Cell: func(n api.Node) string { return string(n.Health) }},
		{Head: "drain", Of: "drain_id", Wide: true, Cell: func(n api.Node) string { return string(n.DrainID) }},
		{Head: "version", Of: "version", Wide: true, Cell: func(n api.Node) string { return n.Version }},
		{Head: "labels", Of: "labels", Wide: true, Cell: func(n api.Node) string { return term.LabelsText(n.Labels) }},
		{Head: "reason", Of: "reason", Wide: true, Cell: func(n api.Node) string { return n.Reason }},
	}
}

func nodeLs(a *app) *cobra.Command {
	var filter listFlags
	var selector string
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list nodes", Args: term.Exactly(),
		Example: "outspan node ls\noutspan node ls --selector rack=r1 -o wide\n" +
			"outspan node ls --filter state=draining -o name",
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := filter.options()
			labels, err := parseLabels(selector)
			if err != nil {
				return err
			}
			for k, v := range labels {
				o.Filter = append(o.Filter, "labels."+k+"="+v)
			}
			o.Fields = fieldsFor(a, a.nodeColumns())
			got, err := a.client().Nodes.List(cmd.Context(), o)
			if err != nil {
				return err
			}
			if err := showList(a, sorted(got, byNodeName), nodeName, a.nodeColumns()); err != nil {
				return err
			}
			if len(o.Filter) == 0 && !a.Output.Machine() {
				a.noteJoined(cmd.Context(), model.SubjectAgent, o.Consistency, namesOf(got.Items, nodeName),
					"joined and without a node: %s. If an agent never ran, look there: journalctl -u outspan. To end the "+
						"certificates: outspan node revoke NAME")
			}
			return nil
		},
	}
	filter.register(cmd)
	cmd.Flags().StringVar(&selector, "selector", "", "only nodes with these labels: k=v,...")
	return cmd
}

func nodeStatus(a *app) *cobra.Command {
	return statusVerb{
		of: "NODE", short: "show a node and what runs there", kind: "nodes",
		example: "outspan node status n7\noutspan node status n7 --wait=offline --timeout 30s",
		states:  nodeStates(), wait: a.waitForNode, show: a.showNode,
	}.command(a)
}

func (a *app) showNode(ctx context.Context, ref string) error {
	node, err := a.client().Nodes.Get(ctx, ref, client.ReadOptions{})
	if err != nil {
		return err
	}
	n := node.Value
	there := client.List[api.Instance]{}
	if !a.Output.Machine() {
		if there, err = a.client().Instances.List(ctx, client.InstanceListOptions{Node: string(n.ID)}); err != nil {
			return err
		}
	}
	return a.Show(term.Result{JSON: node.Raw, Names: []string{n.Name}, Text: func(p *term.Page) {
		p.Fields(
			term.Field{"Name", n.Name}, term.Field{"Id", string(n.ID)}, term.Field{"State", nodeState(n)},
			term.Field{"Intent", string(n.Intent)}, term.Field{"Health", string(n.Health)},
			term.Field{"Eligible", eligibleText(n)}, term.Field{"Address", n.Address}, term.Field{"Agent version", n.Version},
			term.Field{"Last seen", a.agoOf(n)}, term.Field{"Epoch", term.Number(n.Epoch)},
			term.Field{"CPU", fmt.Sprintf("%d of %d shares (%d reserved)", n.Allocated.CPU, n.Capacity.CPU, n.Reserved.CPU)},
			term.Field{"Memory", fmt.Sprintf("%s of %s (%s reserved)", model.SizeText(n.Allocated.MemoryBytes),
				model.SizeText(n.Capacity.MemoryBytes), model.SizeText(n.Reserved.MemoryBytes))},
			term.Field{"Containers", runtimeText(n.Runtime)}, term.Field{"Bridge", bridgeText(n.Runtime)},
			term.Field{"Labels", term.LabelsText(n.Labels)}, term.Field{"Drain", afterDrain(n)},
			term.Field{"Warnings", strings.Join(n.Warnings, "; ")},
		)
		for _, t := range n.Troubles {
			p.Line("its agent reports %s: %s", t.Check, t.Reason)
		}
		for _, t := range n.PortProblems {
			p.Line("%s", model.PortProblem(t).Words())
		}
		if n.Owes {
			p.Line("its agent has not told since the last restore what runs here")
		}
		p.Section("Instances")
		term.Rows(p, sorted(there, bySlot).Items, a.instanceColumns())
		if len(n.Unknown) > 0 {
			p.Section("Unknown to the restored state")
			for _, i := range n.Unknown {
				if !i.Kept {
					p.Line("%s in slot %d of %s; it stops once the restore is confirmed", i.Instance, i.Slot, i.Group)
					continue
				}
				p.Line("%s in slot %d of %s; to stop it once the restore is confirmed: outspan instance stop %s", i.Instance,
					i.Slot, i.Group, i.Instance)
			}
		}
	}})
}

// afterDrain returns the id of a node's drain. If the drain has ended for this node, the text also names the phase and
// the command that puts the node back into use.
func afterDrain(n api.Node) string {
	if n.DrainPhase == "" || n.DrainPhase == model.PhaseDraining {
		return string(n.DrainID)
	}
	return fmt.Sprintf("%s, %s; to take the node back: outspan node uncordon %s", n.DrainID, n.DrainPhase, n.Name)
}

func eligibleText(n api.Node) string {
	if n.Eligible {
		return "yes"
	}
	return "no: " + n.Reason
}

func (a *app) agoOf(n api.Node) string {
	if n.LastSeen == nil {
		return ""
	}
	text := a.Age(n.LastSeen) + " ago"
	if n.SeenBy != "" {
		text += fmt.Sprintf(" (the leader can't see it, server %s can)", n.SeenBy)
	}
	return text
}

// nodeVerb is a command that changes one or more nodes and needs only their names as arguments.
type nodeVerb struct {
	verb, short, long string
	done              string // what is printed about each node after the write
	waitFor           string // the default state of --wait; "" means that the command has no --wait
	// intent calls the API for a command with the flag -m. It is nil for confirm-dead, which calls ConfirmDead instead.
	intent func(client.Nodes, context.Context, string, api.IntentBody,
		client.WriteOptions) (client.Response[api.NodeReply], error)
	force string // help text of --force; "" means that the command has no --force
}

func (v nodeVerb) command(a *app) *cobra.Command {
	var write writeFlags
	var until waitFlags
	var message string
	var force bool
	cmd := &cobra.Command{
		Use: v.verb + " NODE...", Short: v.short, Long: v.long, Args: term.AtLeast(1), ValidArgsFunction: a.complete("nodes"),
		RunE: func(cmd *cobra.Command, args []string) error {
			do := func(ctx context.Context, ref string, o client.WriteOptions) (client.Response[api.NodeReply], error) {
				if v.intent != nil {
					return v.intent(a.client().Nodes, ctx, ref, api.IntentBody{Reason: message}, o)
				}
				return a.client().Nodes.ConfirmDead(ctx, ref, api.DeadBody{Force: force}, o)
			}
			return a.eachNode(cmd.Context(), v.verb, v.done, args, do, &write, &until)
		},
	}
	write.register(cmd, "check only, change nothing")
	if v.intent != nil {
		cmd.Flags().StringVarP(&message, "message", "m", "", "why, for people; stands in the event")
	}
	if v.force != "" {
		cmd.Flags().BoolVar(&force, "force", false, v.force)
	}
	if v.waitFor != "" {
		until.register(cmd, v.waitFor, nodeStates()...)
	}
	return cmd
}

type nodeWrite func(ctx context.Context, ref string, o client.WriteOptions) (client.Response[api.NodeReply], error)

// eachNode changes each node in order by calling do, prints the reply, and waits for the state that --wait names. It
// stops at the first error. It refuses --request-id for several nodes, because the id identifies one write.
func (a *app) eachNode(ctx context.Context, verb, done string, refs []string, do nodeWrite, write *writeFlags,
	until *waitFlags) error {
	if write.requestID != "" && len(refs) > 1 {
		return term.Usage("--request-id names one write, %d nodes are given", len(refs)).
			WithHint("call it once for each node")
	}
	if a.Output.Machine() && len(refs) > 1 {
		return a.eachNodeAsList(ctx, refs, do, write, until)
	}
	for _, ref := range refs {
		ends := a.drainThatEnds(ctx, verb, ref)
		got, err := do(ctx, ref, write.options())
		if err == nil {
			err = a.showNodeReply(got, ref, done, write)
		}
		if err == nil && ends != "" {
			a.Note("its part of drain %s %s", ends,
				map[bool]string{true: "would be canceled", false: "is canceled"}[write.dryRun])
		}
		if err == nil && !write.dryRun {
			err = a.waitForNode(ctx, ref, until)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// drainThatEnds returns the id of the drain that the command uncordon would cancel for a node. It returns "" if there
// is none, if the drain can't be read, or if verb is not "uncordon".
func (a *app) drainThatEnds(ctx context.Context, verb, ref string) model.DrainID {
	if verb != "uncordon" {
		return ""
	}
	n, err := a.client().Nodes.Get(ctx, ref, client.ReadOptions{})
	if err != nil || n.Value.DrainID == "" {
		return "" // the write that follows reports the error, if there is one
	}
	d, err := a.client().Drains.Get(ctx, string(n.Value.DrainID), client.ReadOptions{})
	if err != nil {
		return ""
	}
	for _, part := range d.Value.Nodes {
		if part.NodeID == n.Value.ID && part.Phase == model.PhaseDraining {
			return d.Value.ID
		}
	}
	return ""
}

// eachNodeAsList is eachNode for programs: it prints one list with all replies. If a write or a wait fails, it prints
// the replies that it has, and returns the error.
func (a *app) eachNodeAsList(ctx context.Context, refs []string, do nodeWrite, write *writeFlags,
	until *waitFlags) error {
	var failed error
	var replies []json.RawMessage
	found := client.List[api.NodeReply]{}
	for _, ref := range refs {
		var got client.Response[api.NodeReply]
		if got, failed = do(ctx, ref, write.options()); failed != nil {
			break
		}
		replies, found.Index = append(replies, got.Raw), got.Value.Index
		found.Items = append(found.Items, got.Value)
		if !write.dryRun {
			if failed = a.waitForNode(ctx, ref, until); failed != nil {
				break
			}
		}
	}
	if len(replies) == 0 {
		return failed
	}
	raw, err := term.Marshal(map[string]any{"items": replies, "index": found.Index})
	if err != nil {
		return err
	}
	found.Raw = raw
	return cmp.Or(showList(a, found, repliedNode, nil), failed)
}

// repliedNode returns the name of the node in a reply, or "" if the node no longer exists.
func repliedNode(r api.NodeReply) string {
	if r.Node == nil {
		return ""
	}
	return r.Node.Name
}

func (a *app) showNodeReply(got client.Response[api.NodeReply], ref, done string, write *writeFlags) error {
	name := term.First(repliedNode(got.Value), ref)
	return a.Show(term.Result{JSON: got.Raw, Names: []string{name}, Text: func(p *term.Page) {
		p.Line("node %s %s %s", name, write.would(done), write.done(got.Value.Index))
	}})
}

func nodeCordon(a *app) *cobra.Command {
	return nodeVerb{verb: "cordon", short: "take no new instances on nodes", done: "is cordoned", waitFor: "cordoned",
		intent: client.Nodes.Cordon}.command(a)
}

func nodeUncordon(a *app) *cobra.Command {
	return nodeVerb{verb: "uncordon", short: "take new instances again; cancels a running drain",
		done: "takes new instances again", waitFor: "active", intent: client.Nodes.Uncordon}.command(a)
}

func nodeDisable(a *app) *cobra.Command {
	return nodeVerb{
		verb: "disable", short: "treat nodes as removed: evict at once", done: "is disabled", waitFor: "disabled",
		intent: client.Nodes.Disable,
		long: "Treats nodes as removed. Evicts like a drain, but does not wait for replacements and skips the budgets of " +
			"groups. It never stops what holds the only copy of data.",
	}.command(a)
}

func nodeEnable(a *app) *cobra.Command {
	return nodeVerb{verb: "enable", short: "end disable", done: "is enabled", waitFor: "active",
		intent: client.Nodes.Enable}.command(a)
}

func nodeConfirmDead(a *app) *cobra.Command {
	return nodeVerb{
		verb: "confirm-dead", short: "say that nothing runs on an offline node any more", done: "is confirmed dead",
		long: "Says that nothing runs on an offline node any more: its instances count as stopped, and what must not run " +
			"twice may be replaced.\nSwitch the machine off first: a machine that is only cut off goes on with its work. What " +
			"runs under a lease (a group with a block exclusive) it ends by itself; until lease, grace and a margin have " +
			"passed since it went offline this is refused with lease_held. What has no lease and must not run twice (same " +
			"identity, local volume) nothing ends: this is refused with node_offline_unconfirmed_stop. --force says that the " +
			"machine is known to be off.",
		force: "the machine is known to be off, whatever it might still run; recorded",
	}.command(a)
}

func nodeForget(a *app) *cobra.Command {
	var write writeFlags
	var lose []string
	cmd := &cobra.Command{
		Use: "forget NODE", Short: "remove an offline node on which nothing is left", Args: term.Exactly("NODE"),
		ValidArgsFunction: a.complete("nodes"),
		Long: `Removes an offline node on which nothing is left. While the node is the home of a local volume this is refused and lists the volumes: bring the node back,
or restore backups on other nodes. --lose-data JOB/GROUP gives the data of a group up: its slots start empty on other nodes. That is recorded and shown by why.`,
		Example: "outspan node forget n7 --dry-run\noutspan node forget n7 --lose-data cache/main",
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := a.client().Nodes.Forget(cmd.Context(), args[0],
				client.ForgetOptions{WriteOptions: write.options(), LoseData: lose})
			if err != nil {
				return err
			}
			name := term.First(repliedNode(got.Value.NodeReply), args[0])
			return a.Show(term.Result{JSON: got.Raw, Names: []string{name}, Text: func(p *term.Page) {
				p.Line("node %s %s %s", name, write.would("is forgotten"), write.done(got.Value.Index))
				for _, id := range got.Value.Lost {
					p.Line("  the data of volume %s is lost", id)
				}
			}})
		},
	}
	write.register(cmd, "check and show which data would be lost, change nothing")
	cmd.Flags().StringArrayVar(&lose, "lose-data", nil, "JOB/GROUP whose data on the node is given up; may be repeated")
	return cmd
}
