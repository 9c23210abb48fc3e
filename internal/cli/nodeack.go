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

func nodeAckBlockers(a *app) *cobra.Command {
	var write writeFlags
	cmd := &cobra.Command{
		Use: "ack-blockers NODE [INSTANCE...]", Short: "accept that instances stay running on a draining node", Args: atLeast(1), ValidArgsFunction: a.complete("nodes", "instances"),
		Long: "Accepts that instances stay running on a draining node, so that its drain can end. Without instances: all that block now.",
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
			return a.show(shown{json: got.Raw, names: []string{first(repliedNode(got.Value), args[0])}, text: func(p *page) {
				p.acked(got.Value, args[0], slots, &write)
			}})
		},
	}
	write.register(cmd, "check only, change nothing")
	return cmd
}

// slotsOn tells which slot each instance of a node fills; nothing where that can't be asked.
func (a *app) slotsOn(ctx context.Context, node string) map[model.InstanceID]string {
	slots := map[model.InstanceID]string{}
	if node == "" || a.output.machine() {
		return slots
	}
	found, err := a.client().Instances.List(ctx, client.InstanceListOptions{Node: node})
	if err != nil {
		return slots // the write has been carried out: its outcome is told without them
	}
	for _, i := range found.Items {
		slots[i.ID] = fmt.Sprintf("%s slot %d", model.NewGroupID(i.Job, i.Group), i.Slot)
	}
	return slots
}

// acked lists the instances that stay running on a node: those that were acknowledged now, and those before.
func (p *page) acked(r api.NodeReply, ref string, slots map[model.InstanceID]string, write *writeFlags) {
	if r.Node == nil || len(r.Node.Acked) == 0 {
		p.line("nothing blocks on node %s: nothing is acknowledged %s", first(repliedNode(r), ref), write.done(r.Index))
		return
	}
	verb := "has its blockers acknowledged"
	if write.dryRun {
		verb = "would have its blockers acknowledged"
	}
	p.line("node %s %s %s; these stay running:", r.Node.Name, verb, write.done(r.Index))
	for n, id := range r.Node.Acked {
		if n == listedAtMost && !p.wide {
			p.line("  %d more: -o wide", len(r.Node.Acked)-n)
			break
		}
		p.line("%s", strings.TrimRight("  "+string(id)+"  "+slots[id], " "))
	}
}
