package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// DebugState returns the command debug state.
func DebugState(t *term.Console) *cobra.Command {
	var at uint64
	var out string
	cmd := &cobra.Command{
		Use: "state DATA_DIR|FILE [TABLE [KEY]]", Short: "make the state behind an entry again, and show it",
		Args: term.Between(1, 3),
		Example: "outspan debug state /var/lib/outspan --at 4711\noutspan debug state /var/lib/outspan --at 4711 instances " +
			"3k9f\noutspan debug state /var/lib/outspan --at 4711 --out before.snap\noutspan debug state monday.snap nodes",
		Long: `Begins with the newest snapshot that is not newer than the entry, applies the log behind it, and shows what the state is: its digest, that of each table, and
whether every invariant holds. With a table, its rows; with a table and a key or a unique prefix of one, that row with every field. Secrets are not
shown. With --out the state is written as a snapshot file, which every command here reads, and outspan server snapshot restore too; secrets are in it.`,
		RunE: func(cmd *cobra.Command, args []string) error { return showState(cmd.Context(), t, args, at, out) },
	}
	cmd.Flags().Uint64Var(&at, "at", 0, "index of the entry; 0 means the newest")
	cmd.Flags().StringVar(&out, "out", "", "write the state into this file, which must not exist (0600)")
	return cmd
}

func showState(ctx context.Context, t *term.Console, args []string, at uint64, out string) error {
	if len(args) > 1 {
		if err := knownTable(args[1]); err != nil {
			return err
		}
	}
	if err := writable(out, args[0]); err != nil {
		return err
	}
	d, err := loadState(ctx, args[0], at)
	if err != nil {
		return err
	}
	if out != "" {
		if err := saveState(out, d.state); err != nil {
			return err
		}
		t.Note("wrote %s", out)
	}
	if len(args) > 1 {
		return showRows(t, d.state, args[1], strings.Join(args[2:], ""))
	}
	v := viewState(d)
	s, err := term.ResultOf(v, []string{fmt.Sprint(v.Index)}, func(p *term.Page) { statePage(p, v) })
	if err != nil {
		return err
	}
	return t.Show(s)
}

// writable refuses an output path that exists, or that is inside the data directory that the command reads.
func writable(out, source string) error {
	if out == "" {
		return nil
	}
	if _, err := os.Lstat(out); err == nil {
		return model.Refuse(model.CodeConflict, "%s exists already", out).WithHint("choose another name")
	}
	path, _, err := splitSource(source)
	if err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(out))
	if err != nil {
		return term.Usage("can't write %s: %v", out, err)
	}
	from, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil // reading the source reports the error
	}
	dir, err = filepath.Abs(dir)
	from, err2 := filepath.Abs(from)
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("find %s: %w", out, err)
	}
	if rel, err := filepath.Rel(from, dir); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
		return term.Usage("%s is inside %s, where nothing may change", out, source).WithHint("choose another directory")
	}
	return nil
}

func saveState(path string, s fsm.State) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".outspan-snapshot-*")
	if err != nil {
		return term.Usage("can't write %s: %v", path, err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // after success there is nothing to remove
	err = fsm.WriteSnapshot(tmp, s)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// knownTable refuses an unknown table name.
func knownTable(name string) error {
	names := fsm.TableNames()
	if slices.Contains(names, name) {
		return nil
	}
	refusal := model.Refuse(model.CodeNotFound, "there is no table %q", name)
	if near := term.Nearest(name, names); near != "" {
		return refusal.WithHint("did you mean: %s", near)
	}
	return refusal.WithHint("the tables are %s", strings.Join(names, ", "))
}

// debugRow is one row of a table.
type debugRow struct {
	Table string `json:"table"`
	Key   string `json:"key"`
	Row   any    `json:"row"`
}

func showRows(t *term.Console, s fsm.State, table, key string) error {
	all, _ := s.Rows(table)
	if key == "" && table != fsm.ScalarsTable {
		return listRows(t, s, table)
	}
	var found []debugRow
	for k, row := range all {
		if k == key {
			found = []debugRow{{table, k, fsm.Describe(row)}}
			break
		}
		if strings.HasPrefix(k, key) {
			found = append(found, debugRow{table, k, fsm.Describe(row)})
		}
	}
	switch {
	case len(found) == 0:
		return model.Refuse(model.CodeNotFound, "there is no row %q in %s at index %d", key, table, s.Index).
			WithHint("leave the key out to see all of them")
	case len(found) > 1:
		return model.Refuse(model.CodeAmbiguous, "%d rows of %s begin with %q", len(found), table, key).
			WithHint("give more characters of the key")
	}
	text, err := rowText(found[0].Row)
	if err != nil {
		return err
	}
	out, err := term.ResultOf(found[0], []string{found[0].Key}, func(p *term.Page) { p.Line("%s", text) })
	if err != nil {
		return err
	}
	return t.Show(out)
}

func listRows(t *term.Console, s fsm.State, table string) error {
	v := struct {
		Items []debugRow `json:"items"`
		Index uint64     `json:"index"`
	}{[]debugRow{}, s.Index}
	all, _ := s.Rows(table)
	var names []string
	for k, row := range all {
		v.Items = append(v.Items, debugRow{table, k, fsm.Describe(row)})
		names = append(names, k)
	}
	out, err := term.ResultOf(v, names, func(p *term.Page) {
		term.Rows(p, v.Items, []term.Column[debugRow]{
			{Head: "key", Cell: func(r debugRow) string { return r.Key }},
			{Head: "row", Cell: func(r debugRow) string { return cutText(valueText(r.Row), p.Wide) }},
		})
	})
	if err != nil {
		return err
	}
	return t.Show(out)
}

// cutText shortens a cell of a table unless wide is true.
func cutText(text string, wide bool) string {
	const most = 160
	if wide || len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}

// storedView is the JSON of one snapshot in the output of debug snapshot. Values that can't be read from a damaged
// snapshot are empty.
type storedView struct {
	fsm.SnapshotInfo
	File string `json:"file"`
	// LogIndex is the index of the last record of the log, which may be one of raft's own records. SnapshotInfo.Index is
	// the index of the last record with commands.
	LogIndex     uint64                 `json:"log_index,omitempty"`
	LogTerm      uint64                 `json:"log_term,omitempty"`
	Servers      []cluster.StoredMember `json:"servers,omitempty"`
	TableDigests []fsm.TableDigest      `json:"table_digests,omitempty"`
	Check        *checkView             `json:"check,omitempty"`
	Error        *model.Error           `json:"error,omitempty"`
}

// DebugSnapshot returns the command debug snapshot.
func DebugSnapshot(t *term.Console) *cobra.Command {
	return &cobra.Command{
		Use:     "snapshot DATA_DIR|FILE",
		Short:   "check the snapshots of a stopped server, or a snapshot file, and say what is in them",
		Args:    term.Exactly("DATA_DIR|FILE"),
		Example: "outspan debug snapshot /var/lib/outspan\noutspan debug snapshot monday.snap --json",
		Long: `Reads each snapshot whole: every checksum, the order and number of rows, the digest of the whole and of each table, and whether every invariant holds. A
directory has up to three, the newest first. Of one that is damaged it shows what stands before the damage, and the exit code is not 0.`,
		RunE: func(_ *cobra.Command, args []string) error { return showSnapshots(t, args[0]) },
	}
}

func showSnapshots(t *term.Console, path string) error {
	stored, err := storedAt(path)
	if err != nil {
		return err
	}
	v := struct {
		Items []storedView `json:"items"`
		Index uint64       `json:"index"`
	}{Items: []storedView{}}
	var names []string
	var failure error
	for _, s := range stored {
		one := viewStored(s)
		if one.Error != nil && failure == nil {
			failure = one.Error
		}
		v.Items, names = append(v.Items, one), append(names, one.File)
		v.Index = max(v.Index, one.Index)
	}
	out, err := term.ResultOf(v, names, func(p *term.Page) {
		for i, one := range v.Items {
			if i > 0 {
				p.Line("")
			}
			storedPage(p, one)
		}
		if len(v.Items) == 0 {
			p.Line("%s has no snapshot yet: everything is in its log", path)
		}
	})
	if err != nil {
		return err
	}
	if err := t.Show(out); err != nil {
		return err
	}
	return failure
}

// storedAt returns the snapshots at a path. The path is a snapshot file, the directory of one snapshot, or the data
// directory of a stopped server.
func storedAt(path string) ([]cluster.StoredSnapshot, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, model.Refuse(model.CodeNotFound, "there is no %s", path).
			WithHint("give a snapshot file, or the data_dir of a stopped server")
	case !info.IsDir():
		return []cluster.StoredSnapshot{{File: path}}, nil
	case cluster.IsStored(path):
		return []cluster.StoredSnapshot{cluster.ReadStored(path)}, nil
	}
	dir, err := cluster.OpenStopped(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }() // nothing was written to it
	return dir.Snapshots(), nil
}

func viewStored(s cluster.StoredSnapshot) storedView {
	v := storedView{File: s.File, LogIndex: s.Index, LogTerm: s.Term, Servers: s.Servers, Error: s.Err}
	if f, err := os.Open(s.File); err == nil {
		v.SnapshotInfo, _ = fsm.InspectSnapshot(f) // s.Err or the full reading below reports damage
		f.Close()
	}
	if s.Err != nil {
		return v
	}
	read := s.State
	if s.Index == 0 { // a file outside a data directory has no metadata beside it
		read = func() (fsm.State, error) { return cluster.ReadStateFile(s.File) }
	}
	state, err := read()
	if err != nil {
		var ok bool
		if v.Error, ok = errors.AsType[*model.Error](err); !ok {
			v.Error = model.Refuse(model.CodeInternal, "%v", err)
		}
		return v
	}
	check := checkOf(state)
	v.TableDigests, v.Check = fsm.TableDigests(state), &check
	return v
}

func storedPage(p *term.Page, v storedView) {
	if v.Error != nil {
		p.Fields(term.Field{"File", v.File}, term.Field{"Damaged", v.Error.Message})
	}
	if v.Format == 0 {
		return
	}
	if v.Error == nil {
		p.Fields(term.Field{"File", v.File})
	}
	logIndex := ""
	if v.LogIndex > 0 {
		logIndex = fmt.Sprintf("%d of term %d", v.LogIndex, v.LogTerm)
	}
	var servers []string
	for _, s := range v.Servers {
		servers = append(servers, string(s.ID)+"@"+s.Address)
	}
	p.Fields(
		term.Field{"Cluster", fmt.Sprintf("%s (%s)", v.ClusterName, v.ClusterID)}, term.Field{"Index", fmt.Sprint(v.Index)},
		term.Field{"Term", fmt.Sprint(v.Term)}, term.Field{"Log index", logIndex},
		term.Field{"Last entry", term.Stamp(wallTime(v.Wall))}, term.Field{"Format", fmt.Sprint(v.Format)},
		term.Field{"Incarnation", fmt.Sprint(v.Incarnation)},
		term.Field{"Servers", strings.Join(servers, ", ")}, term.Field{"Size", model.SizeText(v.Bytes)},
		term.Field{"Digest", v.Digest},
	)
	if v.Check != nil {
		checkPage(p, *v.Check)
		digestTable(p, v.TableDigests)
		return
	}
	p.Section("Rows before the damage")
	term.Rows(p, v.Tables, []term.Column[fsm.TableCount]{
		{Head: "table", Cell: func(t fsm.TableCount) string { return t.Name }},
		{Head: "rows", Cell: func(t fsm.TableCount) string { return fmt.Sprint(t.Rows) }},
	})
}
