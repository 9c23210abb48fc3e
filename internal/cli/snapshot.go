package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/local"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

func serverSnapshot(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "snapshot", Short: "save, inspect and restore the whole state",
	}
	cmd.AddCommand(snapshotSave(a), local.SnapshotInspect(&a.Console), snapshotRestore(a))
	return cmd
}

func snapshotSave(a *app) *cobra.Command {
	var force, stale bool
	cmd := &cobra.Command{
		Use: "save FILE", Example: "outspan server snapshot save monday.snap", Short: "save the whole state into a file",
		Args: term.Exactly("FILE"),
		Long: "Saves the state of the cluster, as of now, and checks what arrived. The file appears only when it " +
			"is whole (0600).",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.saveSnapshot(cmd.Context(), args[0], force, stale)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace a file that is there")
	cmd.Flags().BoolVar(&stale, "stale", false, "save what one server has, also without a leader")
	return cmd
}

func (a *app) saveSnapshot(ctx context.Context, path string, force, stale bool) error {
	if _, err := os.Lstat(path); err == nil && !force {
		return model.Refuse(model.CodeConflict, "%s exists already", path).
			WithHint("choose another name, or replace it with --force")
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".outspan-snapshot-*")
	if err != nil {
		return term.Usage("can't write %s: %v", path, err)
	}
	defer func() {
		tmp.Close()
		_ = os.Remove(tmp.Name()) // after success there is nothing to remove
	}()
	var consistency client.Consistency
	if stale {
		consistency = client.Stale
	}
	body, err := a.client().Snapshots.Save(ctx, consistency)
	if err != nil {
		return err
	}
	defer body.Close()
	if _, err := io.Copy(tmp, body); err != nil {
		return notWritten(path, fmt.Errorf("receive the snapshot: %w", err))
	}
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read the snapshot back: %w", err)
	}
	view, err := local.InspectSnapshot(tmp, path)
	if err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return notWritten(path, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return notWritten(path, err)
	}
	if !stale {
		warnNotExported(ctx, a)
	}
	return local.ShowSnapshot(&a.Console, view, "saved")
}

// warnNotExported says on stderr if no export of the key is known that a present snapshot needs. It asks for at most
// 2 s, and says nothing if it may not ask, or if the cluster has no keyring: the snapshot is saved already.
func warnNotExported(ctx context.Context, a *app) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	got, err := a.client().Trust.Keyring(ctx)
	if err != nil {
		return
	}
	for _, k := range got.Value.Keys {
		if k.Active && !k.Exported {
			fmt.Fprintf(a.Err, "no export of the keyring with the key %s is known: without it the snapshot can't begin a "+
				"cluster again\n  next: on a server: outspan server keyring export --data-dir DIR --passphrase-file - FILE\n",
				term.Printable(k.ID))
		}
	}
}

// notWritten returns the error for a file that could not be written. Code: disk_full if the disk is full.
func notWritten(path string, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return model.Refuse(model.CodeDiskFull, "%s could not be written: the disk is full", path).
			WithHint("free some space there, or name a file on another disk; nothing was left behind")
	}
	return fmt.Errorf("write %s: %w", path, err)
}

func snapshotRestore(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "restore FILE", Example: "outspan server snapshot restore monday.snap --yes",
		Short: "replace the state of the whole cluster by a saved one", Args: term.Exactly("FILE"),
		Long: `Replaces the state of the whole cluster. The file is read and checked before anything changes. Agents go on running what they run, and stop
nothing that the restored state does not know until that is confirmed with: outspan settings resume restore.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return term.Usage("can't read the file: %v", err).
					WithHint("snapshots are written by: outspan server snapshot save FILE")
			}
			defer f.Close()
			v, err := local.InspectSnapshot(f, args[0])
			if err != nil {
				return err
			}
			if !yes {
				return term.Usage("restoring %s (index %d) replaces everything that the cluster knows", args[0], v.Index).
					WithHint("if that is what you want, say so with --yes")
			}
			data, err := os.ReadFile(args[0])
			if err != nil {
				return term.Usage("can't read the file: %v", err).
					WithHint("snapshots are written by: outspan server snapshot save FILE")
			}
			return a.restoreSnapshot(cmd.Context(), data, args[0])
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "replace what the cluster knows")
	return cmd
}

func (a *app) restoreSnapshot(ctx context.Context, data []byte, name string) error {
	got, err := a.client().Snapshots.Restore(ctx, bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	return a.Show(term.Result{JSON: got.Raw, Names: []string{name}, Text: func(p *term.Page) {
		p.Line("the state is that of %s (index %d)", name, got.Value.Index)
		p.Line("  agents stop nothing that it does not know; what that would stop: outspan settings resume restore " +
			"--dry-run; confirm with: outspan settings resume restore")
	}})
}
