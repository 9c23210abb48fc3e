package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// moveFlags are the flags of commands that start a transfer and follow it.
type moveFlags struct {
	write  writeFlags
	until  waitFlags
	keep   term.DurationFlag
	detach bool
}

func (f *moveFlags) register(cmd *cobra.Command, replaces bool) {
	f.write.register(cmd, "check and show what would be done, change nothing")
	f.until.registerTimeout(cmd)
	cmd.Flags().BoolVar(&f.detach, "detach", false, "return once it has started, instead of following it")
	f.keep.Value = new(model.Duration)
	if replaces {
		cmd.Flags().Var(&f.keep, "keep", "how long the old copy is kept (default: the setting volume_cooling)")
	}
}

// kept returns the value of --keep, or nil if the flag was not given.
func (f *moveFlags) kept() *model.Duration {
	if !f.keep.Given {
		return nil
	}
	return f.keep.Value
}

func volumeMigrate(a *app) *cobra.Command {
	var f moveFlags
	var to string
	cmd := &cobra.Command{
		Use: "migrate VOLUME --to NODE", Short: "move a volume to another node, with its instance",
		Args: term.Exactly("VOLUME"), ValidArgsFunction: a.complete("volumes"),
		Long: `Moves a local volume, and the others of its slot, to another node: the instance is stopped under its budget, the data is copied from agent to agent
and verified, the copy is attached, and the instance starts there. Until the copy is attached every failure leaves the old one in use. The
old copy is kept for a while; outspan volume cancel TRANSFER removes it before its time.`,
		Example: "outspan volume migrate db/main/0/data --to n2\noutspan volume migrate db/main/0/data --to n2 --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.transfer(cmd.Context(),
				func(ctx context.Context, o client.WriteOptions) (client.Response[api.TransferReply], error) {
					return a.client().Volumes.Migrate(ctx, args[0], api.MigrateBody{To: to, Keep: f.kept()}, o)
				}, &f)
		},
	}
	f.register(cmd, true)
	cmd.Flags().StringVar(&to, "to", "", "the node")
	_ = cmd.RegisterFlagCompletionFunc("to", a.complete("nodes")) // no error is possible: the flag exists
	return cmd
}

func volumeBackup(a *app) *cobra.Command {
	var f moveFlags
	var live bool
	cmd := &cobra.Command{
		Use: "backup VOLUME", Short: "write a volume to the backup directory of its node", Args: term.Exactly("VOLUME"),
		ValidArgsFunction: a.complete("volumes"),
		Long: `Writes a local volume, and the others of its slot, to the backup directory of its node (backup_dir in the agent's file, typically a shared mount): a
tar with a manifest of checksums. The instance is stopped meanwhile, under its budget, unless --live is given: then the data is as after a
power cut at best, which not every program can use.`,
		Example: "outspan volume backup db/main/0/data\noutspan volume backup db/main/0/data --live --detach",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.transfer(cmd.Context(),
				func(ctx context.Context, o client.WriteOptions) (client.Response[api.TransferReply], error) {
					return a.client().Volumes.Backup(ctx, args[0], api.BackupBody{Live: live}, o)
				}, &f)
		},
	}
	f.register(cmd, false)
	cmd.Flags().BoolVar(&live, "live", false, "while the instance runs")
	return cmd
}

func volumeAttach(a *app) *cobra.Command {
	var f moveFlags
	var node string
	var epoch uint64
	cmd := &cobra.Command{
		Use:   "attach VOLUME@TRANSFER | VOLUME --node NODE --epoch EPOCH",
		Short: "put a restored volume, a kept old copy or found data to use, in place of the one that is",
		Args:  term.Exactly("VOLUME"), ValidArgsFunction: a.complete("volumes"),
		Long: `Puts a restored volume to use, in place of the one that is: VOLUME@TRANSFER, as volume ls shows it. With the transfer of a move or a restore whose old copy is
still kept, it puts that old copy to use again, such as when the new home died: outspan node confirm-dead first. It also takes data that outspan volume find
lists, by --node and --epoch. What it replaces is kept for a while in turn.`,
		Example: "outspan volume attach db/main/0/data@01J9Z5XK3M\noutspan volume attach db/main/0/data --node n2 --epoch " +
			"281474976710742",
		RunE: func(cmd *cobra.Command, args []string) error {
			body := api.AttachBody{Keep: f.kept()}
			if node != "" {
				copies, err := a.foundCopies(cmd.Context(), args[0], node, epoch)
				if err != nil {
					return err
				}
				body.Node, body.Copies = node, copies
			}
			return a.transfer(cmd.Context(),
				func(ctx context.Context, o client.WriteOptions) (client.Response[api.TransferReply], error) {
					return a.client().Volumes.Attach(ctx, args[0], body, o)
				}, &f)
		},
	}
	f.register(cmd, true)
	cmd.Flags().StringVar(&node, "node", "", "of found data: where it is")
	cmd.Flags().Uint64Var(&epoch, "epoch", 0, "of found data: which, as volume find shows it")
	cmd.MarkFlagsRequiredTogether("node", "epoch")
	_ = cmd.RegisterFlagCompletionFunc("node", a.complete("nodes")) // no error is possible: the flag exists
	return cmd
}

func volumeRestore(a *app) *cobra.Command {
	var f moveFlags
	var node, volume string
	var attach bool
	cmd := &cobra.Command{
		Use: "restore BACKUP --node NODE", Short: "make a new volume of a backup", Args: term.Exactly("BACKUP"),
		ValidArgsFunction: a.complete("backups"),
		Long: `Makes a new volume of a backup, on a node whose backup directory has the archive. It is not in use until it is attached: with --attach at once, or later
with outspan volume attach. Where the old home is gone, that is how its data comes back: outspan node confirm-dead first.`,
		Example: "outspan volume restore 01J9Z5XK3M --node n2 --attach\n" +
			"outspan volume restore 01J9Z5XK3M --node n2 --volume db/main/1/data",
		RunE: func(cmd *cobra.Command, args []string) error {
			body := api.RestoreBody{Node: node, Volume: model.VolumeID(volume), Attach: attach, Keep: f.kept()}
			return a.transfer(cmd.Context(),
				func(ctx context.Context, o client.WriteOptions) (client.Response[api.TransferReply], error) {
					return a.client().Backups.Restore(ctx, args[0], body, o)
				}, &f)
		},
	}
	f.register(cmd, true)
	cmd.Flags().StringVar(&node, "node", "", "where")
	cmd.Flags().
		StringVar(&volume, "volume", "", "what it is to become: JOB/GROUP/SLOT/NAME (default: what the backup was made of)")
	cmd.Flags().BoolVar(&attach, "attach", false, "put it to use at once")
	_ = cmd.RegisterFlagCompletionFunc("node", a.complete("nodes")) // no error is possible: the flags exist
	_ = cmd.RegisterFlagCompletionFunc("volume", a.complete("volumes"))
	return cmd
}

// transferWrite is an API call that starts a transfer.
type transferWrite func(context.Context, client.WriteOptions) (client.Response[api.TransferReply], error)

// transfer starts a transfer by calling do, shows it, and follows it until it succeeds or fails. It does not follow
// with --dry-run or --detach, or if the transfer of a repeated request no longer exists. Output for a program shows
// only the last state.
func (a *app) transfer(ctx context.Context, do transferWrite, f *moveFlags) error {
	got, err := do(ctx, f.write.options())
	if err != nil {
		return err
	}
	t := got.Value.Transfer
	if t == nil || f.write.dryRun || f.detach {
		return a.showStarted(got, f)
	}
	if a.Output.Machine() {
		end, failed := a.watchTransfer(ctx, t.ID, &f.until, a.Note, func(api.Transfer) {})
		if end == nil {
			return failed
		}
		got.Value.Transfer = end
		s, err := term.ResultOf(got.Value, []string{string(t.ID)}, nil)
		if err != nil {
			return err
		}
		return cmp.Or(a.Show(s), failed)
	}
	if err := a.showStarted(got, f); err != nil {
		return err
	}
	p := term.NewProgress(&a.Console)
	defer p.End()
	_, err = a.watchTransfer(ctx, t.ID, &f.until, p.Line, func(t api.Transfer) { p.Now("%s %s", t.Phase, doneText(t)) })
	return err
}

func (a *app) showStarted(got client.Response[api.TransferReply], f *moveFlags) error {
	names := []string{}
	if t := got.Value.Transfer; t != nil {
		names = append(names, string(t.ID))
	}
	return a.Show(term.Result{JSON: got.Raw, Names: names, Text: func(p *term.Page) {
		t := got.Value.Transfer
		switch {
		case t == nil:
			p.Line("it was done before, and is no longer on record %s", f.write.done(got.Value.Index))
		case f.write.dryRun:
			p.Line("would %s %s %s", t.Kind, wayOf(*t), f.write.done(got.Value.Index))
		default:
			p.Line("transfer %s: %s %s %s", t.ID, t.Kind, wayOf(*t), f.write.done(got.Value.Index))
		}
	}})
}

// wayOf describes which volumes a transfer works on, and on which node, or from which node to which.
func wayOf(t api.Transfer) string {
	text := term.Joined(asTexts(t.Volumes))
	switch {
	case t.Kind == model.TransferBackup:
		return text + " on " + t.From
	case t.From == "" || t.From == t.To:
		return text + " on " + t.To
	}
	return fmt.Sprintf("%s from %s to %s", text, t.From, t.To)
}

// watchTransfer follows a transfer until it succeeds or fails. It calls say for each new phase and each new reason to
// wait, and bar after each read of an unfinished transfer. It returns the transfer as it was last read, or nil if no
// read succeeded. If the transfer failed, the error says why.
func (a *app) watchTransfer(ctx context.Context, id model.TransferID, until *waitFlags, say func(string, ...any),
	bar func(api.Transfer)) (*api.Transfer, error) {
	limited, cancel := until.limit(ctx, "transfer "+string(id))
	defer cancel()
	var last *api.Transfer
	err := watch(limited, a, of(a.client().Transfers.Get, string(id)),
		func(got client.Response[api.Transfer]) (bool, error) {
			t := got.Value
			if last == nil || last.Phase != t.Phase {
				say("%s", transferNews(t))
			}
			if t.WaitingFor != "" && (last == nil || last.WaitingFor != t.WaitingFor) {
				say("waits: %s", t.WaitingFor)
			}
			last = &t
			switch t.Phase {
			case model.TransferSucceeded:
				return true, nil
			case model.TransferFailed:
				return true, transferFailed(t)
			}
			bar(t)
			return false, nil
		})
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		a.Note("\nstopped following; transfer %s goes on", id)
		a.Note("  look at it:  outspan volume status %s", id)
		a.Note("  give it up:  outspan volume cancel %s", id)
	}
	return last, err
}

func transferNews(t api.Transfer) string {
	text := string(t.Phase)
	if t.Phase == model.TransferSucceeded {
		if done := doneText(t); done != "" {
			text += ", " + model.SizeText(t.Total)
		}
		switch {
		case t.Kind == model.TransferBackup:
			text += ", backup " + string(t.Backup)
		case t.Kind == model.TransferRestore && !t.Attach:
			text += fmt.Sprintf("; put it to use with: outspan volume attach %s@%s", t.Volume, t.ID)
		case t.OldCopy != nil:
			text += fmt.Sprintf("; the old copy on %s is kept until %s", t.OldCopy.Node, term.Stamp(&t.OldCopy.Until))
		}
	}
	return text
}

func transferFailed(t api.Transfer) error {
	refusal := model.Refuse(codeEndedFailed, "transfer %s failed: %s: %s", t.ID, t.Code, t.Message)
	if t.OldCopy == nil && t.Kind != model.TransferRestore && t.From != "" {
		return refusal.WithHint("volume %s is where it was, on node %s", t.Volume, t.From)
	}
	return refusal.WithHint("see: outspan volume status %s", t.Volume)
}

func volumeFind(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "find", Short: "list data on nodes' disks that nothing uses and that the servers don't keep",
		Args: term.Exactly(),
		Long: `Asks every agent which data of local volumes is on its disk, and lists what the servers neither use nor keep as an old copy: after a restore such as where a
volume was moved to since the snapshot was saved, or what a node has whose data was given up (outspan node forget --lose-data) and that came back. Volumes of one
slot that were in use together are one line. The age says whether the data is newer or older than what is in use. Nothing is changed.`,
		Example: "outspan volume find\noutspan volume attach db/main/0/data --node n2 --epoch 281474976710742",
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Volumes.Found(cmd.Context())
			if err != nil {
				return err
			}
			var names []string
			for _, f := range got.Value.Items {
				names = append(names, string(f.Volume))
			}
			return a.Show(term.Result{JSON: got.Raw, Names: names, Text: func(p *term.Page) {
				term.Rows(p, got.Value.Items, []term.Column[api.FoundVolume]{
					{Head: "node", Cell: func(f api.FoundVolume) string { return f.Node }},
					{Head: "volume", Cell: func(f api.FoundVolume) string { return string(f.Volume) }},
					{Head: "epoch", Cell: func(f api.FoundVolume) string { return fmt.Sprint(f.Epoch) }},
					{Head: "age", Cell: func(f api.FoundVolume) string { return string(f.Age) }},
					{Head: "last written", Cell: func(f api.FoundVolume) string { return term.Stamp(&f.Written) }},
				})
				for _, f := range got.Value.Items {
					p.Line("to put it to use: %s", attachFound(f))
				}
				sayNotAsked(p, got.Value.Silent)
			}})
		},
	}
}

// attachFound returns the command line that attaches found data.
func attachFound(f api.FoundVolume) string {
	return fmt.Sprintf("outspan volume attach %s --node %s --epoch %d", f.Volume, f.Node, f.Epoch)
}

func sayNotAsked(p *term.Page, silent []string) {
	for _, node := range silent {
		p.Line("the agent of node %s does not answer: data on its disk is not listed", node)
	}
}

// foundCopies searches the list of `outspan volume find` for the line with this node and epoch that includes the
// volume. It returns the epochs of all volumes on that line, by the name of the volume. Code: not_found.
func (a *app) foundCopies(ctx context.Context, volume, node string, epoch uint64) (map[string]uint64, error) {
	got, err := a.client().Volumes.Found(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range got.Value.Items {
		if _, has := f.Copies[path.Base(volume)]; has && f.Node == node && f.Epoch == epoch &&
			path.Dir(string(f.Volume)) == path.Dir(volume) {
			return f.Copies, nil
		}
	}
	return nil, model.Refuse(model.CodeNotFound, "no data of volume %s with epoch %d was found on node %s", volume, epoch,
		node).WithHint("list what was found: outspan volume find")
}

// showFound lists data of volumes that was found after a restore and is not older than the data in use. It also lists
// the nodes whose agents did not answer.
func (a *app) showFound(p *term.Page, found api.FoundVolumes) {
	for _, f := range found.Items {
		if f.Age != api.FoundOlder {
			p.Line("node %s has data of volume %s that the restored state does not know; to put it to use once the restore "+
				"is confirmed: %s", f.Node, f.Volume, attachFound(f))
		}
	}
	sayNotAsked(p, found.Silent)
}
