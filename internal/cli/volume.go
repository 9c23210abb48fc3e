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

func volumeID(v api.Volume) string { return string(v.ID) }

func backupID(b api.Backup) string { return string(b.ID) }

func volumeLs(a *app) *cobra.Command {
	var filter listFlags
	var job, node string
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list volumes, where they are and who uses them", Args: exactly(),
		Example: "outspan volume ls\noutspan volume ls --node n1\noutspan volume ls --filter state!=in_use",
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Volumes.List(cmd.Context(), client.VolumeListOptions{ListOptions: filter.options(), Job: job, Node: node})
			if err != nil {
				return err
			}
			return showList(a, got, volumeID, []column[api.Volume]{
				{head: "id", cell: volumeID},
				{head: "kind", cell: func(v api.Volume) string { return string(v.Kind) }},
				{head: "node", cell: func(v api.Volume) string { return v.Node }},
				{head: "state", cell: func(v api.Volume) string { return string(v.State) }},
				{head: "instance", cell: func(v api.Volume) string { return string(v.Instance) }},
				{head: "left behind on", cell: func(v api.Volume) string { return strings.Join(asideNodes(v), ", ") }},
				{head: "transfer", wide: true, cell: func(v api.Volume) string { return string(v.Transfer) }},
				{head: "old copies", wide: true, cell: oldCopiesText},
			})
		},
	}
	filter.register(cmd)
	cmd.Flags().StringVar(&job, "job", "", "only of this job")
	cmd.Flags().StringVar(&node, "node", "", "only on this node")
	return cmd
}

// asideNodes names the nodes on which a volume left data behind.
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
		text := fmt.Sprintf("%s until %s by transfer %s", c.Node, stamp(&c.Until), c.Transfer)
		if c.Needed != "" {
			text += ", and for as long as " + c.Needed
		}
		texts = append(texts, text)
	}
	return joined(texts)
}

func volumeStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "status VOLUME|TRANSFER", Short: "show a volume with what was done to it and its backups, or one transfer", Args: exactly("VOLUME"),
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
	return a.show(shown{json: got.Raw, names: []string{volumeID(v.Volume)}, text: func(p *page) {
		p.fields(
			field{"Id", volumeID(v.Volume)}, field{"Kind", string(v.Kind)}, field{"Node", v.Node}, field{"State", string(v.State)},
			field{"Instance", string(v.Instance)}, field{"Transfer", string(v.Transfer)}, field{"Old copies", oldCopiesText(v.Volume)},
		)
		for _, left := range v.Aside {
			p.line("data of %s was left behind on node %s; to put it to use: outspan volume attach %s --node %s --epoch %d", stamp(&left.At), left.Node, v.ID, left.Node, left.Epoch)
		}
		p.section("Transfers")
		rows(p, v.Transfers, a.transferColumns())
		p.section("Backups")
		rows(p, v.Backups, a.backupColumns())
	}})
}

func (a *app) transferColumns() []column[api.Transfer] {
	return []column[api.Transfer]{
		{head: "id", cell: func(t api.Transfer) string { return string(t.ID) }},
		{head: "kind", cell: func(t api.Transfer) string { return string(t.Kind) }},
		{head: "phase", cell: func(t api.Transfer) string { return string(t.Phase) }},
		{head: "from", cell: func(t api.Transfer) string { return t.From }},
		{head: "to", cell: func(t api.Transfer) string { return t.To }},
		{head: "done", cell: doneText},
		{head: "age", cell: func(t api.Transfer) string { return a.age(&t.CreatedAt) }},
		{head: "actor", cell: func(t api.Transfer) string { return string(t.Actor) }},
		{head: "reason", cell: transferReason},
	}
}

func doneText(t api.Transfer) string {
	if t.Total == 0 {
		return ""
	}
	return fmt.Sprintf("%s of %s", sizeText(t.Bytes), sizeText(t.Total))
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
	return a.show(shown{json: got.Raw, names: []string{string(t.ID)}, text: func(p *page) {
		p.fields(
			field{"Id", string(t.ID)}, field{"Kind", string(t.Kind)}, field{"Phase", string(t.Phase)}, field{"Volume", string(t.Volume)}, field{"From", t.From},
			field{"To", t.To}, field{"Backup", string(t.Backup)}, field{"Done", doneText(t)}, field{"Reason", transferReason(t)}, field{"Actor", string(t.Actor)},
			field{"Started", stamp(&t.CreatedAt)}, field{"Ended", stamp(t.EndedAt)},
		)
	}})
}

func (a *app) backupColumns() []column[api.Backup] {
	return []column[api.Backup]{
		{head: "id", cell: backupID},
		{head: "volume", cell: func(b api.Backup) string { return string(b.Volume) }},
		{head: "node", cell: func(b api.Backup) string { return b.Node }},
		{head: "size", cell: func(b api.Backup) string { return sizeText(b.SizeBytes) }},
		{head: "live", cell: func(b api.Backup) string { return yesNo(b.Live) }},
		{head: "age", cell: func(b api.Backup) string { return a.age(&b.CreatedAt) }},
		{head: "sha256", wide: true, cell: func(b api.Backup) string { return b.Sum }},
		{head: "actor", wide: true, cell: func(b api.Backup) string { return string(b.Actor) }},
	}
}

func volumeBackups(a *app) *cobra.Command {
	var filter listFlags
	cmd := &cobra.Command{
		Use: "backups", Short: "list backups, the oldest first", Args: exactly(),
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
	var write writeFlags
	cmd := &cobra.Command{
		Use: "forget BACKUP", Short: "remove the record of a backup; its archive stays where it is", Args: exactly("BACKUP"), ValidArgsFunction: a.complete("backups"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := a.client().Backups.Forget(cmd.Context(), args[0], write.options())
			if err != nil {
				return err
			}
			return a.show(shown{json: got.Raw, names: args, text: func(p *page) {
				p.line("backup %s %s %s", args[0], write.would("is forgotten"), write.done(got.Value.Index))
			}})
		},
	}
	write.register(cmd, "check only, change nothing")
	return cmd
}

func volumeCancel(a *app) *cobra.Command {
	var write writeFlags
	cmd := &cobra.Command{
		Use: "cancel TRANSFER", Short: "give up a transfer, or remove what it left: a restored copy that is not in use, or an old copy before its time",
		Args: exactly("TRANSFER"), ValidArgsFunction: a.complete("transfers"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := a.client().Transfers.Cancel(cmd.Context(), args[0], write.options())
			if err != nil {
				return err
			}
			return a.show(shown{json: got.Raw, names: args, text: func(p *page) {
				p.line("transfer %s is given up, or its left-overs are %s", args[0], write.done(got.Value.Index))
			}})
		},
	}
	write.register(cmd, "check only, change nothing")
	return cmd
}

// transferNames are the ids of transfers that are on record.
func transferNames(ctx context.Context, a *app) []string {
	return namesIn(ctx, a.client().Transfers.List, func(t api.Transfer) string { return string(t.ID) })
}
