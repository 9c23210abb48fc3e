package local

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// SnapshotView is the summary of a snapshot file.
type SnapshotView struct {
	File string `json:"file"`
	fsm.SnapshotInfo
}

// InspectSnapshot checks a snapshot file and returns its summary. The parameter path is the name of the file in the
// summary and in errors. Codes: those of fsm.InspectSnapshot.
func InspectSnapshot(f *os.File, path string) (SnapshotView, error) {
	found, err := fsm.InspectSnapshot(bufio.NewReader(f))
	if err != nil {
		var known *model.Error
		if errors.As(err, &known) {
			return SnapshotView{}, &model.Error{Code: known.Code, Message: path + ": " + known.Message, Hint: known.Hint}
		}
		return SnapshotView{}, fmt.Errorf("inspect %s: %w", path, err)
	}
	return SnapshotView{File: path, SnapshotInfo: found}, nil
}

// ShowSnapshot prints the summary of a snapshot. If done is not "", the text begins with done and the file's name.
func ShowSnapshot(t *term.Console, v SnapshotView, done string) error {
	s, err := term.ResultOf(v, []string{v.File}, func(p *term.Page) {
		if done != "" {
			p.Line("%s %s", done, v.File)
		}
		snapshotPage(p, v)
	})
	if err != nil {
		return err
	}
	return t.Show(s)
}

// SnapshotInspect returns the command server snapshot inspect.
func SnapshotInspect(t *term.Console) *cobra.Command {
	return &cobra.Command{
		Use: "inspect FILE", Example: "outspan server snapshot inspect monday.snap",
		Short: "check a snapshot file and say what is in it", Args: term.Exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return term.Usage("can't read the file: %v", err).
					WithHint("snapshots are written by: outspan server snapshot save FILE")
			}
			defer f.Close()
			v, err := InspectSnapshot(f, args[0])
			if err != nil {
				return err
			}
			return ShowSnapshot(t, v, "")
		},
	}
}

func snapshotPage(p *term.Page, v SnapshotView) {
	saved := time.UnixMilli(v.Wall)
	p.Fields(
		term.Field{"File", v.File}, term.Field{"Cluster", fmt.Sprintf("%s (%s)", v.ClusterName, v.ClusterID)},
		term.Field{"Index", fmt.Sprint(v.Index)},
		term.Field{"Term", fmt.Sprint(v.Term)}, term.Field{"Last entry", term.Stamp(&saved)},
		term.Field{"Format", fmt.Sprint(v.Format)},
		term.Field{"Incarnation", fmt.Sprint(v.Incarnation)}, term.Field{"Size", model.SizeText(v.Bytes)},
		term.Field{"Digest", v.Digest},
	)
	p.Section("Tables")
	term.Rows(p, v.Tables, []term.Column[fsm.TableCount]{
		{Head: "table", Cell: func(t fsm.TableCount) string { return t.Name }},
		{Head: "rows", Cell: func(t fsm.TableCount) string { return fmt.Sprint(t.Rows) }},
	})
}
