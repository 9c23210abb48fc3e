package cli

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/local"
	"github.com/outspan/outspan/internal/cli/term"
)

// serverKeyring is the command server keyring of package local, with the parts that call the servers.
func serverKeyring(a *app) *cobra.Command {
	cmd := local.ServerKeyring(&a.Console, local.KeyringCalls{List: a.listKeyring, Exported: a.recordExport})
	cmd.AddCommand(keyringRotate(a), keyringPrune(a))
	return cmd
}

var keyringKeyColumns = []term.Column[api.KeyringKey]{
	{Head: "id", Cell: func(k api.KeyringKey) string { return k.ID }},
	{Head: "active", Cell: func(k api.KeyringKey) string { return term.YesNo(k.Active) }},
	{Head: "needed", Cell: func(k api.KeyringKey) string { return term.YesNo(k.Needed) }},
	{Head: "exported", Cell: exportedText},
	{Head: "created", Cell: func(k api.KeyringKey) string { return createdText(k.Created) }},
}

// exportedText returns "" for a key that the state does not need, because the state knows nothing of its exports.
func exportedText(k api.KeyringKey) string {
	if !k.Needed {
		return ""
	}
	return term.YesNo(k.Exported)
}

// createdText returns "" for a key that the leader lacks.
func createdText(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return term.Stamp(&at)
}

var keyringServerColumns = []term.Column[api.KeyringServer]{
	{Head: "server", Cell: func(s api.KeyringServer) string { return s.Name }},
	{Head: "answers", Cell: func(s api.KeyringServer) string { return term.YesNo(s.Answers) }},
	{Head: "has every key", Cell: func(s api.KeyringServer) string { return term.YesNo(s.Complete) }},
	{Head: "note", Cell: keyringNote},
}

func keyringNote(s api.KeyringServer) string {
	if len(s.Lacks) > 0 {
		return "lacks " + strings.Join(s.Lacks, ", ")
	}
	return s.Error
}

// listKeyring shows the keys, and which servers have them.
func (a *app) listKeyring(ctx context.Context) error {
	got, err := a.client().Trust.Keyring(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, k := range got.Value.Keys {
		names = append(names, k.ID)
	}
	return a.Show(term.Result{JSON: got.Raw, Names: names, Text: func(p *term.Page) {
		term.Rows(p, got.Value.Keys, keyringKeyColumns)
		p.Line("")
		term.Rows(p, got.Value.Servers, keyringServerColumns)
	}})
}

// exportWait limits how long an export waits for the servers to record it.
const exportWait = 5 * time.Second

// recordExport tells the server of a data directory about an export. If there is no socket in the directory, it calls
// the servers as other commands do.
func (a *app) recordExport(ctx context.Context, dataDir string, keys []string) error {
	ctx, cancel := context.WithTimeout(ctx, exportWait)
	defer cancel()
	c := a.client()
	if path, err := filepath.Abs(filepath.Join(dataDir, "api.sock")); err == nil {
		if _, err := os.Stat(path); err == nil {
			if c, err = atSocket(path); err != nil {
				return err
			}
		}
	}
	_, err := c.Trust.KeyringExported(ctx, api.ExportedBody{Keys: keys}, client.WriteOptions{})
	return err
}

func keyringRotate(a *app) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: "rotate", Short: "make a new key, and encrypt the keys of the state under it", Args: term.Exactly(),
		Example: "outspan server keyring rotate --dry-run\noutspan server keyring rotate",
		Long: `Makes a new key, gives it to every server, and then encrypts the keys of the state under it. It is refused if a server of the cluster does not answer.
The key before stays in all keyrings until server keyring prune: snapshots from before need it. Certificates and gossip keep their keys.

Export the keyring afterwards, and keep the exports from before for older snapshots. If rotate fails, repeat it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Trust.RotateKeyring(cmd.Context(), client.WriteOptions{DryRun: dryRun})
			if err != nil {
				return err
			}
			r := got.Value
			return a.Show(term.Result{JSON: got.Raw, Names: []string{r.Key}, Text: func(p *term.Page) {
				if dryRun {
					if slices.ContainsFunc(r.Servers, func(s api.KeyringServer) bool { return !s.Answers || !s.Complete }) {
						p.Line("a rotation would be refused: every server must answer and have every key; nothing was changed")
					} else {
						p.Line("every server answers and has every key, so a rotation may begin; nothing was changed")
					}
					term.Rows(p, r.Servers, keyringServerColumns)
					return
				}
				p.Line("key %s is in use on %d servers; key %s stays for older snapshots", r.Key, len(r.Servers), r.Before)
				p.Line("  next: on one of them: outspan server keyring export --data-dir DIR --passphrase-file - FILE")
			}})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show which servers answer and have every key, change nothing")
	return cmd
}

var keyringKeptColumns = []term.Column[api.KeyringKept]{
	{Head: "server", Cell: func(k api.KeyringKept) string { return k.Server }},
	{Head: "keeps", Cell: func(k api.KeyringKept) string { return k.Key }},
	{Head: "because", Cell: func(k api.KeyringKept) string { return k.Reason }},
}

func keyringPrune(a *app) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: "prune", Short: "remove keys that no server needs any more", Args: term.Exactly(),
		Example: "outspan server keyring prune --dry-run\noutspan server keyring prune",
		Long: `Removes keys of the keyring from the files of all servers. Each server keeps the keys that its state needs, and all of them while it has no snapshot or one from before the last rotation. It is refused if a server of the cluster does not answer.

It knows nothing of snapshots that were saved elsewhere: keep the exports from before the rotation as long as you keep those. If prune fails, repeat it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Trust.PruneKeyring(cmd.Context(), client.WriteOptions{DryRun: dryRun})
			if err != nil {
				return err
			}
			r := got.Value
			return a.Show(term.Result{JSON: got.Raw, Names: r.Removed, Text: func(p *term.Page) {
				switch {
				case len(r.Removed) == 0:
					p.Line("there is no key to remove")
				case dryRun:
					p.Line("would be removed: %s; nothing was changed", strings.Join(r.Removed, ", "))
				default:
					p.Line("removed: %s", strings.Join(r.Removed, ", "))
				}
				term.Rows(p, r.Kept, keyringKeptColumns)
			}})
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say which keys would be removed, change nothing")
	return cmd
}
