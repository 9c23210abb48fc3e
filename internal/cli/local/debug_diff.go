package local

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/cli/term"
)

// diffView is the difference between two states.
type diffView struct {
	A     diffSide        `json:"a"`
	B     diffSide        `json:"b"`
	Equal bool            `json:"equal"`
	Items []fsm.RowChange `json:"items"`
}

// diffSide identifies one of the two states.
type diffSide struct {
	Source string `json:"source"`
	Index  uint64 `json:"index"`
	Term   uint64 `json:"term"`
	Digest string `json:"digest"`
}

// DebugDiff returns the command debug diff.
func DebugDiff(t *term.Console) *cobra.Command {
	var tables []string
	var exitCode bool
	cmd := &cobra.Command{
		Use: "diff A B", Short: "compare two states row by row", Args: term.Exactly("A", "B"),
		Example: "outspan debug diff /var/lib/outspan@4700 /var/lib/outspan@4711\n" +
			"outspan debug diff s1.snap s2.snap --table instances --table groups\n" +
			"outspan debug diff yesterday.snap /var/lib/outspan",
		Long: `Each of A and B is a snapshot file, or the data directory of a stopped server, DIR for its newest state or DIR@INDEX for that behind an entry. To find out where
two servers differ, compare them at one index. Secrets are not shown, only that they differ.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range tables {
				if err := knownTable(name); err != nil {
					return err
				}
			}
			left, err := loadState(cmd.Context(), args[0], 0)
			if err != nil {
				return err
			}
			right, err := loadState(cmd.Context(), args[1], 0)
			if err != nil {
				return err
			}
			v := diffOf(left, right, tables)
			if err := showDiff(t, v); err != nil {
				return err
			}
			if exitCode && !v.Equal {
				return term.Quiet{Code: term.ExitHasChanges}
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&tables, "table", nil, "only this table, such as instances; may be repeated")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 20 when they differ")
	return cmd
}

func diffOf(left, right debugState, tables []string) diffView {
	v := diffView{A: sideOf(left), B: sideOf(right), Items: []fsm.RowChange{}}
	for _, c := range fsm.Diff(left.state, right.state) {
		if len(tables) == 0 || slices.Contains(tables, c.Table) {
			v.Items = append(v.Items, c)
		}
	}
	v.Equal = len(v.Items) == 0
	return v
}

func sideOf(d debugState) diffSide {
	return diffSide{d.source, d.state.Index, d.state.LogTerm, fsm.Digest(d.state)}
}

func showDiff(t *term.Console, v diffView) error {
	names := make([]string, len(v.Items))
	for i, c := range v.Items {
		names[i] = rowName(c)
	}
	s, err := term.ResultOf(v, names, func(p *term.Page) {
		term.Rows(p, []diffSide{v.A, v.B}, []term.Column[diffSide]{
			{Head: "source", Cell: func(d diffSide) string { return d.Source }},
			{Head: "index", Cell: func(d diffSide) string { return fmt.Sprint(d.Index) }},
			{Head: "term", Cell: func(d diffSide) string { return fmt.Sprint(d.Term) }},
			{Head: "digest", Cell: func(d diffSide) string { return d.Digest }},
		})
		p.Line("")
		changeTable(p, v.Items)
	})
	if err != nil {
		return err
	}
	return t.Show(s)
}

// rowName returns the table and the key of a row.
func rowName(c fsm.RowChange) string {
	if c.Key == "" {
		return c.Table
	}
	return c.Table + " " + c.Key
}

// changeTable prints each row that was added (+), removed (-) or changed (~), with its fields.
func changeTable(p *term.Page, list []fsm.RowChange) {
	if len(list) == 0 {
		p.Line("nothing differs")
	}
	for _, c := range list {
		sign := map[fsm.Change]string{fsm.RowAdded: "+", fsm.RowRemoved: "-", fsm.RowChanged: "~"}[c.Change]
		p.Line("%s %s", sign, rowName(c))
		for _, f := range c.Fields {
			switch c.Change {
			case fsm.RowAdded:
				p.Line("    %s: %s", f.Path, valueText(f.After))
			case fsm.RowRemoved:
				p.Line("    %s: %s", f.Path, valueText(f.Before))
			default:
				p.Line("    %s: %s -> %s", f.Path, valueText(f.Before), valueText(f.After))
			}
		}
	}
}
