package local

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// entryView is one entry of the log in full.
type entryView struct {
	recordView
	Format      uint16      `json:"format,omitempty"`
	DecidedTerm uint64      `json:"decided_term,omitempty"` // 0 means that the entry is valid in any term
	ClusterTime model.Time  `json:"cluster_time_ms,omitempty"`
	BodyHash    string      `json:"body_hash,omitempty"`
	Groups      []groupView `json:"groups,omitempty"`

	Replayed bool            `json:"replayed"` // if false, Changes and Digest are unknown
	Why      *model.Error    `json:"not_replayed,omitempty"`
	Changes  []fsm.RowChange `json:"changes,omitempty"`
	Digest   string          `json:"digest,omitempty"` // of the state after the entry
}

// groupView is one group of commands and its outcome.
type groupView struct {
	Commands []fullCommand `json:"commands"`
	Accepted *bool         `json:"accepted,omitempty"` // nil unless the entry was replayed
	Refusal  *model.Error  `json:"refusal,omitempty"`
	// Replay is true if an earlier entry had the same request id. The group then changed nothing, and Accepted and
	// Refusal are the outcome of the earlier entry.
	Replay bool `json:"replay,omitempty"`
}

// fullCommand is a command with all its fields.
type fullCommand struct {
	Kind   string `json:"kind"`
	Fields any    `json:"fields"`
}

// DebugEntry returns the command debug entry.
func DebugEntry(t *term.Console) *cobra.Command {
	return &cobra.Command{
		Use: "entry DATA_DIR INDEX", Short: "show one entry of the log of a stopped server, and what it did",
		Args:    term.Exactly("DATA_DIR", "INDEX"),
		Example: "outspan debug entry /var/lib/outspan 4711\noutspan debug entry /var/lib/outspan 4711 --json",
		Long: `Decodes an entry with every field by its name, makes the state before it again from a snapshot and the log, applies it, and shows for each group of
commands whether it was accepted or refused, and each row that it changed. Secrets (keys of agents, tokens, values of environment variables) are
not shown. An entry that no snapshot and unbroken log lead to is decoded all the same.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			index, err := strconv.ParseUint(args[1], 10, 64)
			if err != nil || index == 0 {
				return term.Usage("%q is no index of the log", args[1]).
					WithHint("see the indexes with: outspan debug log %s", args[0])
			}
			return showEntry(cmd.Context(), t, args[0], index)
		},
	}
}

func showEntry(ctx context.Context, t *term.Console, path string, index uint64) error {
	dir, err := cluster.OpenStopped(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // nothing was written to it
	record, err := dir.Record(index)
	if err != nil {
		return err
	}
	v := viewEntry(record)
	if record.Kind == cluster.RecordCommand {
		if err := v.replay(ctx, dir, record); err != nil {
			return err
		}
	}
	s, err := term.ResultOf(v, []string{fmt.Sprint(index)}, nil)
	if err != nil {
		return err
	}
	var failure error
	s.Text = func(p *term.Page) { failure = entryPage(p, v) }
	if err := errors.Join(t.Show(s), failure); err != nil {
		return err
	}
	// Don't return record.Err directly: as an error, a nil *model.Error is not nil.
	if record.Err != nil {
		return record.Err
	}
	return nil
}

func viewEntry(r cluster.LogRecord) *entryView {
	e := r.Entry
	v := &entryView{recordView: viewRecord(r), Format: e.Format, DecidedTerm: e.Term, ClusterTime: e.At, BodyHash: e.Body}
	for _, group := range e.Groups {
		var g groupView
		for _, c := range group {
			g.Commands = append(g.Commands, fullCommand{fsm.KindName(c.Kind()), fsm.Describe(c)})
		}
		v.Groups = append(v.Groups, g)
	}
	return v
}

// replay applies the entry to the state before it, and records in v what the entry did. If the state can't be rebuilt
// or the entry can't be applied, replay stores the *model.Error in v.Why and returns nil. It returns any other error.
func (v *entryView) replay(ctx context.Context, dir *cluster.StoppedDir, r cluster.LogRecord) error {
	before := cluster.Replay{State: fsm.NewState()}
	if r.Index > 1 {
		var err error
		if before, err = dir.Replay(ctx, r.Index-1); err != nil {
			return v.notReplayed(err)
		}
	}
	after, results, err := cluster.Step(before.State, r)
	if err != nil {
		return v.notReplayed(err)
	}
	v.Replayed, v.Changes, v.Digest = true, fsm.Diff(before.State, after), fsm.Digest(after)
	for i, result := range results {
		accepted := result.Refusal == nil
		v.Groups[i].Accepted, v.Groups[i].Refusal, v.Groups[i].Replay = &accepted, result.Refusal, result.Replay
	}
	return nil
}

func (v *entryView) notReplayed(err error) error {
	known, ok := errors.AsType[*model.Error](err)
	if !ok {
		return err
	}
	v.Why = known
	return nil
}

func entryPage(p *term.Page, v *entryView) error {
	decided := ""
	if v.DecidedTerm > 0 {
		decided = fmt.Sprint(v.DecidedTerm)
	}
	size := fmt.Sprintf("%d bytes", v.Bytes)
	p.Fields(
		term.Field{"Index", fmt.Sprint(v.Index)}, term.Field{"Term", fmt.Sprint(v.Term)}, term.Field{"Kind", string(v.Kind)},
		term.Field{"Time", term.Stamp(v.Time)}, term.Field{"Actor", string(v.Actor)},
		term.Field{"Request", string(v.RequestID)}, term.Field{"Decided in term", decided}, term.Field{"Size", size},
	)
	for _, s := range v.Servers {
		p.Line("  server %s at %s, vote: %s", s.ID, s.Address, term.YesNo(s.Voter))
	}
	for i, g := range v.Groups {
		p.Section("Group %d: %s", i+1, g.outcome())
		for _, c := range g.Commands {
			p.Line("  %s", c.Kind)
			text, err := rowText(c.Fields)
			if err != nil {
				return err
			}
			p.Line("    %s", strings.ReplaceAll(text, "\n", "\n    "))
		}
	}
	switch {
	case v.Why != nil:
		p.Section("Not replayed: %s", v.Why.Message)
		if v.Why.Hint != "" {
			p.Line("  next: %s", v.Why.Hint)
		}
	case v.Replayed:
		p.Section("Changes")
		changeTable(p, v.Changes)
		p.Line("\nDigest behind it: %s", v.Digest)
	}
	return nil
}

func (g groupView) outcome() string {
	switch {
	case g.Accepted == nil:
		return "outcome not known"
	case *g.Accepted && g.Replay:
		return "answered as the request before it: accepted"
	case *g.Accepted:
		return "accepted"
	case g.Replay:
		return fmt.Sprintf("answered as the request before it: refused, %s (%s)", g.Refusal.Message, g.Refusal.Code)
	}
	return fmt.Sprintf("refused, %s (%s)", g.Refusal.Message, g.Refusal.Code)
}
