package cli

import (
	"bufio"
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

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

func serverSnapshot(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "snapshot", Short: "save, inspect and restore the whole state", Args: cobra.ArbitraryArgs,
		RunE: verbOf,
	}
	cmd.AddCommand(snapshotSave(a), snapshotInspect(a), snapshotRestore(a))
	return cmd
}

// snapshotView is what is said of a snapshot file.
type snapshotView struct {
	File string `json:"file"`
	fsm.SnapshotInfo
}

func snapshotSave(a *app) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "save FILE", Example: "outspan server snapshot save monday.snap", Short: "save the whole state into a file", Args: exactly("FILE"),
		Long: "Saves the state of the cluster, as of now, and checks what arrived. The file appears only when it is whole (0600).",
		RunE: func(cmd *cobra.Command, args []string) error { return a.saveSnapshot(cmd.Context(), args[0], force) },
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace a file that is there")
	return cmd
}

func (a *app) saveSnapshot(ctx context.Context, path string, force bool) error {
	if _, err := os.Lstat(path); err == nil && !force {
		return model.Refuse(model.CodeConflict, "%s exists already", path).WithHint("choose another name, or replace it with --force")
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".outspan-snapshot-*")
	if err != nil {
		return usage("can't write %s: %v", path, err)
	}
	defer func() {
		tmp.Close()
		_ = os.Remove(tmp.Name()) // gone already when all went well
	}()
	body, err := a.client().Snapshots.Save(ctx, "")
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
	view, err := inspect(tmp, path)
	if err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return notWritten(path, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return notWritten(path, err)
	}
	return a.showSnapshot(view, "saved")
}

// notWritten is why a file is not there.
func notWritten(path string, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return model.Refuse(model.CodeDiskFull, "%s could not be written: the disk is full", path).WithHint("free some space there, or name a file on another disk; nothing was left behind")
	}
	return fmt.Errorf("write %s: %w", path, err)
}

func inspect(f *os.File, path string) (snapshotView, error) {
	found, err := fsm.InspectSnapshot(bufio.NewReader(f))
	if err != nil {
		var known *model.Error
		if errors.As(err, &known) {
			return snapshotView{}, &model.Error{Code: known.Code, Message: path + ": " + known.Message, Hint: known.Hint}
		}
		return snapshotView{}, fmt.Errorf("inspect %s: %w", path, err)
	}
	return snapshotView{File: path, SnapshotInfo: found}, nil
}

func (a *app) showSnapshot(v snapshotView, done string) error {
	s, err := shownValue(v, []string{v.File}, func(p *page) {
		if done != "" {
			p.line("%s %s", done, v.File)
		}
		p.snapshot(v)
	})
	if err != nil {
		return err
	}
	return a.show(s)
}

func snapshotInspect(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "inspect FILE", Example: "outspan server snapshot inspect monday.snap", Short: "check a snapshot file and say what is in it", Args: exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return usage("can't read the file: %v", err).WithHint("snapshots are written by: outspan server snapshot save FILE")
			}
			defer f.Close()
			v, err := inspect(f, args[0])
			if err != nil {
				return err
			}
			return a.showSnapshot(v, "")
		},
	}
}

func snapshotRestore(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "restore FILE", Example: "outspan server snapshot restore monday.snap --yes", Short: "replace the state of the whole cluster by a saved one", Args: exactly("FILE"),
		Long: `Replaces the state of the whole cluster. The file is read and checked before anything changes. Agents go on running what they run, and stop
nothing that the restored state does not know until that is confirmed with: outspan settings resume restore.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return usage("can't read the file: %v", err).WithHint("snapshots are written by: outspan server snapshot save FILE")
			}
			defer f.Close()
			v, err := inspect(f, args[0])
			if err != nil {
				return err
			}
			if !yes {
				return usage("restoring %s (index %d) replaces everything that the cluster knows", args[0], v.Index).WithHint("if that is what you want, say so with --yes")
			}
			data, err := os.ReadFile(args[0])
			if err != nil {
				return usage("can't read the file: %v", err).WithHint("snapshots are written by: outspan server snapshot save FILE")
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
	return a.show(shown{json: got.Raw, names: []string{name}, text: func(p *page) {
		p.line("the state is that of %s (index %d)", name, got.Value.Index)
		p.line("  agents stop nothing that it does not know; what that would stop: outspan settings resume restore --dry-run; confirm with: outspan settings resume restore")
	}})
}

func (p *page) snapshot(v snapshotView) {
	saved := time.UnixMilli(v.Wall)
	p.fields(
		field{"File", v.File}, field{"Cluster", fmt.Sprintf("%s (%s)", v.ClusterName, v.ClusterID)}, field{"Index", fmt.Sprint(v.Index)},
		field{"Term", fmt.Sprint(v.Term)}, field{"Last entry", stamp(&saved)}, field{"Format", fmt.Sprint(v.Format)},
		field{"Incarnation", fmt.Sprint(v.Incarnation)}, field{"Size", sizeText(v.Bytes)}, field{"Digest", v.Digest},
	)
	p.section("Tables")
	rows(p, v.Tables, []column[fsm.TableCount]{
		{head: "table", cell: func(t fsm.TableCount) string { return t.Name }},
		{head: "rows", cell: func(t fsm.TableCount) string { return fmt.Sprint(t.Rows) }},
	})
}
