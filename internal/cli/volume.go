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

func volumeID(v api.Volume) string { return string(v.ID) }

func backupID(b api.Backup) string { return string(b.ID) }

func volumeLs(a *app) *cobra.Command {
	var filter listFlags
	var job, node string
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list volumes, where they are and who uses them", Args: term.Exactly(),
		Example: "outspan volume ls\noutspan volume ls --node n1\noutspan volume ls --filter state!=in_use",
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Volumes.List(cmd.Context(),
				client.VolumeListOptions{ListOptions: filter.options(), Job: job, Node: node})
			if err != nil {
				return err
			}
			return showList(a, got, volumeID, []term.Column[api.Volume]{
				{Head: "id", Cell: volumeID},
				{Head: "kind", Cell: func(v api.Volume) string { return string(v.Kind) }},
				{Head: "node", Cell: func(v api.Volume) string { return v.Node }},
				{Head: "state", Cell: func(v api.Volume) string { return string(v.State) }},
				{Head: "instance", Cell: func(v api.Volume) string { return string(v.Instance) }},
				{Head: "left behind on", Cell: func(v api.Volume) string { return strings.Join(asideNodes(v), ", ") }},
				{Head: "transfer", Wide: true, Cell: func(v api.Volume) string { return string(v.Transfer) }},
				{Head: "old copies", Wide: true, Cell: oldCopiesText},
			})
		},
	}
	filter.register(cmd)
	cmd.Flags().StringVar(&job, "job", "", "only of this job")
	cmd.Flags().StringVar(&node, "node", "", "only on this node")
	return cmd
}

// asideNodes returns the nodes on which data of a volume was left behind.
func asideNodes(v api.Volume) []string {
	var nodes []string
	for _, a := range v.Aside {
		nodes = append(nodes, a.Node)
	}
	return nodes
}

func oldCopiesText(v api.Volume) string {
	var texts []string
	for _, c := range v.OldCopies {
		text := fmt.Sprintf("%s until %s by transfer %s", c.Node, term.Stamp(&c.Until), c.Transfer)
		if c.Needed != "" {
			text += ", and for as long as " + c.Needed
		}
		texts = append(texts, text)
	}
	return term.Joined(texts)
}

func volumeStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "status VOLUME|TRANSFER", Short: "show a volume with what was done to it and its backups, or one transfer",
		Args:              term.Exactly("VOLUME"),
		ValidArgsFunction: a.complete("volumes"), Example: "outspan volume status db/main/0/data",
		RunE: func(cmd *cobra.Command, args []string) error {
			err := a.showVolume(cmd.Context(), args[0])
			if isCode(err, model.CodeNotFound) {
				if a.showTransfer(cmd.Context(), args[0]) == nil {
					return nil
				}
			}
			return err
		},
	}
}

func (a *app) showVolume(ctx context.Context, ref string) error {
	got, err := a.client().Volumes.Get(ctx, ref, client.ReadOptions{})
	if err != nil {
		return err
	}
	v := got.Value
	return a.Show(term.Result{JSON: got.Raw, Names: []string{volumeID(v.Volume)}, Text: func(p *term.Page) {
		p.Fields(
			term.Field{"Id", volumeID(v.Volume)}, term.Field{"Kind", string(v.Kind)}, term.Field{"Node", v.Node},
			term.Field{"State", string(v.State)},
			term.Field{"Instance", string(v.Instance)}, term.Field{"Transfer", string(v.Transfer)},
			term.Field{"Old copies", oldCopiesText(v.Volume)},
		)
		for _, left := range v.Aside {
			p.Line("data of %s was left behind on node %s; to put it to use: outspan volume attach %s --node %s --epoch %d",
				term.Stamp(&left.At), left.Node, v.ID, left.Node, left.Epoch)
		}
		p.Section("Transfers")
		term.Rows(p, v.Transfers, a.transferColumns())
		p.Section("Backups")
		term.Rows(p, v.Backups, a.backupColumns())
	}})
}

func (a *app) transferColumns() []term.Column[api.Transfer] {
	return []term.Column[api.Transfer]{
		{Head: "id", Cell: func(t api.Transfer) string { return string(t.ID) }},
		{Head: "kind", Cell: func(t api.Transfer) string { return string(t.Kind) }},
		{Head: "phase", Cell: func(t api.Transfer) string { return string(t.Phase) }},
		{Head: "from", Cell: func(t api.Transfer) string { return t.From }},
		{Head: "to", Cell: func(t api.Transfer) string { return t.To }},
		{Head: "done", Cell: doneText},
		{Head: "age", Cell: func(t api.Transfer) string { return a.Age(&t.CreatedAt) }},
		{Head: "actor", Cell: func(t api.Transfer) string { return string(t.Actor) }},
		{Head: "reason", Cell: transferReason},
	}
}

func doneText(t api.Transfer) string {
	if t.Total == 0 {
		return ""
	}
	return fmt.Sprintf("%s of %s", model.SizeText(t.Bytes), model.SizeText(t.Total))
}

func transferReason(t api.Transfer) string {
	if t.Code != "" {
		return string(t.Code) + ": " + t.Message
	}
	return t.WaitingFor
}

func (a *app) showTransfer(ctx context.Context, ref string) error {
	got, err := a.client().Transfers.Get(ctx, ref, client.ReadOptions{})
	if err != nil {
		return err
	}
	t := got.Value
	return a.Show(term.Result{JSON: got.Raw, Names: []string{string(t.ID)}, Text: func(p *term.Page) {
		p.Fields(
			term.Field{"Id", string(t.ID)}, term.Field{"Kind", string(t.Kind)}, term.Field{"Phase", string(t.Phase)},
			term.Field{"Volume", string(t.Volume)}, term.Field{"From", t.From},
			term.Field{"To", t.To}, term.Field{"Backup", string(t.Backup)}, term.Field{"Done", doneText(t)},
			term.Field{"Reason", transferReason(t)}, term.Field{"Actor", string(t.Actor)},
			term.Field{"Started", term.Stamp(&t.CreatedAt)}, term.Field{"Ended", term.Stamp(t.EndedAt)},
		)
	}})
}

func (a *app) backupColumns() []term.Column[api.Backup] {
	return []term.Column[api.Backup]{
		{Head: "id", Cell: backupID},
		{Head: "volume", Cell: func(b api.Backup) string { return string(b.Volume) }},
		{Head: "node", Cell: func(b api.Backup) string { return b.Node }},
		{Head: "size", Cell: func(b api.Backup) string { return model.SizeText(b.SizeBytes) }},
		{Head: "live", Cell: func(b api.Backup) string { return term.YesNo(b.Live) }},
		{Head: "age", Cell: func(b api.Backup) string { return a.Age(&b.CreatedAt) }},
		{Head: "sha256", Wide: true, Cell: func(b api.Backup) string { return b.Sum }},
		{Head: "actor", Wide: true, Cell: func(b api.Backup) string { return string(b.Actor) }},
	}
}

func volumeBackups(a *app) *cobra.Command {
	var filter listFlags
	cmd := &cobra.Command{
		Use: "backups", Short: "list backups, the oldest first", Args: term.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Backups.List(cmd.Context(), filter.options())
			if err != nil {
				return err
			}
			return showList(a, got, backupID, a.backupColumns())
		},
	}
	filter.register(cmd)
	return cmd
}

func volumeForget(a *app) *cobra.Command {
	return oneChange{noun: "backup", verb: "forget", arg: "BACKUP", kind: "backups", done: "is forgotten",
		short: "remove the record of a backup; its archive stays where it is",
		do: func(ctx context.Context, id string, o client.WriteOptions) (changed, error) {
			got, err := a.client().Backups.Forget(ctx, id, o)
			return changed{got.Raw, id, got.Value.Index}, err
		}}.command(a)
}

func volumeCancel(a *app) *cobra.Command {
	var write writeFlags
	cmd := &cobra.Command{
		Use: "cancel TRANSFER",
		Short: "give up a transfer, or remove what it left: a restored copy that is not in use, or an old copy " +
			"before its time",
		Args: term.Exactly("TRANSFER"), ValidArgsFunction: a.complete("transfers"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := a.client().Transfers.Cancel(cmd.Context(), args[0], write.options())
			if err != nil {
				return err
			}
			return a.Show(term.Result{JSON: got.Raw, Names: args, Text: func(p *term.Page) {
				p.Line("transfer %s is given up, or its left-overs are %s", args[0], write.done(got.Value.Index))
			}})
		},
	}
	write.register(cmd, "check only, change nothing")
	return cmd
}

// transferNames returns the ids of all transfers that the servers still have, for shell completion.
func transferNames(ctx context.Context, a *app) []string {
	return namesIn(ctx, a.client().Transfers.List, func(t api.Transfer) string { return string(t.ID) })
}
