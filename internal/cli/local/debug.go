package local

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// debugState is a state that was read from a file or rebuilt from a log.
type debugState struct {
	source string // the argument of the command
	state  fsm.State
	replay *cluster.Replay // how the state was rebuilt; nil if the state was read from a snapshot
}

// loadState reads the state that arg names: a snapshot file, the directory of one snapshot, or the data directory of a
// stopped server as DATA_DIR or DATA_DIR@INDEX. For DATA_DIR the parameter index applies, where 0 means the newest
// state. loadState refuses an index for a snapshot.
func loadState(ctx context.Context, arg string, index uint64) (debugState, error) {
	path, at, err := splitSource(arg)
	if err != nil {
		return debugState{}, err
	}
	index = cmp.Or(at, index)
	info, err := os.Stat(path)
	if err != nil {
		return debugState{}, model.Refuse(model.CodeNotFound, "there is no %s", path).
			WithHint("give a snapshot file, or the data_dir of a stopped server: DIR or DIR@INDEX")
	}
	out := debugState{source: arg}
	if !info.IsDir() || cluster.IsStored(path) {
		if index != 0 {
			return out, term.Usage("%s is a snapshot: it is of one index", path).
				WithHint("give the data_dir of a stopped server to choose one")
		}
		if info.IsDir() {
			out.state, err = cluster.ReadStored(path).State()
		} else {
			out.state, err = cluster.ReadStateFile(path)
		}
		return out, err
	}
	dir, err := cluster.OpenStopped(path)
	if err != nil {
		return out, err
	}
	defer func() { _ = dir.Close() }() // nothing was written to it
	replay, err := dir.Replay(ctx, index)
	out.state, out.replay = replay.State, &replay
	return out, err
}

// splitSource splits DIR@INDEX. If arg is the path of an existing file or directory, or has no @, it returns arg and 0.
func splitSource(arg string) (path string, index uint64, _ error) {
	if _, err := os.Stat(arg); err == nil {
		return arg, 0, nil
	}
	i := strings.LastIndexByte(arg, '@')
	if i < 0 {
		return arg, 0, nil
	}
	index, err := strconv.ParseUint(arg[i+1:], 10, 64)
	if err != nil || index == 0 {
		return "", 0, term.Usage("%q does not end with an index of the log", arg).
			WithHint("write DATA_DIR@INDEX, such as /var/lib/outspan@4711")
	}
	return arg[:i], index, nil
}

// stateView is the JSON of debug state: a summary of a state.
type stateView struct {
	Source      string            `json:"source"`
	Index       uint64            `json:"index"`        // of the last command entry in the state
	At          uint64            `json:"at,omitempty"` // of the last entry of any kind, if the state was rebuilt
	Term        uint64            `json:"term"`
	Format      uint16            `json:"format"`
	ClusterID   string            `json:"cluster_id"`
	ClusterName string            `json:"cluster_name"`
	Incarnation uint64            `json:"incarnation"`
	Time        *time.Time        `json:"time,omitempty"`
	ClusterTime model.Time        `json:"cluster_time_ms"`
	From        string            `json:"from,omitempty"`
	Applied     int               `json:"applied"`
	Skipped     []*model.Error    `json:"skipped,omitempty"`
	Digest      string            `json:"digest"`
	Tables      []fsm.TableDigest `json:"tables"`
	Check       checkView         `json:"check"`
}

// checkView has the findings of fsm.Check.
type checkView struct {
	OK       bool     `json:"ok"`
	Findings []string `json:"findings,omitempty"`
}

func checkOf(s fsm.State) checkView {
	err := fsm.Check(s)
	v := checkView{OK: err == nil}
	found, _ := errors.AsType[fsm.Findings](err)
	for _, one := range found {
		v.Findings = append(v.Findings, one.String())
	}
	return v
}

func viewState(d debugState) stateView {
	s := d.state
	v := stateView{
		Source: d.source, Index: s.Index, Term: s.LogTerm, Format: s.Format, ClusterID: s.Cluster.ID,
		ClusterName: s.Cluster.Name, Incarnation: s.Incarnation,
		Time: wallTime(s.Wall), ClusterTime: s.Now, Digest: fsm.Digest(s), Tables: fsm.TableDigests(s), Check: checkOf(s),
	}
	if d.replay != nil {
		v.At, v.From, v.Applied, v.Skipped = d.replay.Index, cmp.Or(d.replay.From, "the beginning"),
			d.replay.Applied, d.replay.Skipped
	}
	return v
}

// wallTime converts Unix milliseconds to a time in UTC. It returns nil for 0.
func wallTime(ms int64) *time.Time {
	if ms == 0 {
		return nil
	}
	t := time.UnixMilli(ms).UTC()
	return &t
}

func statePage(p *term.Page, v stateView) {
	from := ""
	if v.From != "" {
		from = fmt.Sprintf("%s, then %d entries", v.From, v.Applied)
	}
	p.Fields(
		term.Field{"Source", v.Source}, term.Field{"Cluster", fmt.Sprintf("%s (%s)", v.ClusterName, v.ClusterID)},
		term.Field{"Index", fmt.Sprint(v.Index)}, term.Field{"Term", fmt.Sprint(v.Term)},
		term.Field{"Last entry", term.Stamp(v.Time)}, term.Field{"Cluster time", fmt.Sprintf("%d ms", v.ClusterTime)},
		term.Field{"Format", fmt.Sprint(v.Format)},
		term.Field{"Incarnation", fmt.Sprint(v.Incarnation)}, term.Field{"Made from", from}, term.Field{"Digest", v.Digest},
	)
	for _, skipped := range v.Skipped {
		p.Line("  skipped: %s", skipped.Message)
	}
	checkPage(p, v.Check)
	digestTable(p, v.Tables)
}

func checkPage(p *term.Page, v checkView) {
	if v.OK {
		p.Fields(term.Field{"Check", "every invariant holds"})
		return
	}
	p.Fields(term.Field{"Check", fmt.Sprintf("%d invariants are broken", len(v.Findings))})
	for _, finding := range v.Findings {
		p.Line("  %s", finding)
	}
}

func digestTable(p *term.Page, tables []fsm.TableDigest) {
	p.Section("Tables")
	term.Rows(p, tables, []term.Column[fsm.TableDigest]{
		{Head: "table", Cell: func(t fsm.TableDigest) string { return t.Name }},
		{Head: "rows", Cell: func(t fsm.TableDigest) string { return fmt.Sprint(t.Rows) }},
		{Head: "digest", Cell: func(t fsm.TableDigest) string {
			if p.Wide {
				return t.Digest
			}
			return t.Digest[:min(16, len(t.Digest))]
		}},
	})
}

// valueText formats a value of a row. A string stays as it is, but is quoted if it is empty or has white space at an
// end. Other values are JSON, and nil is "-".
func valueText(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		if v == "" || strings.TrimSpace(v) != v {
			return strconv.Quote(v)
		}
		return v
	}
	raw, err := term.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(string(raw))
}

// rowText returns a row or command as YAML, with the fields in the order of their definition.
func rowText(v any) (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("write JSON: %w", err)
	}
	var b bytes.Buffer
	if err := term.PrintYAML(&b, raw); err != nil {
		return "", err
	}
	return strings.TrimRight(b.String(), "\n"), nil
}
