package local

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// recordView is one entry of the log, as debug log lists it.
type recordView struct {
	Index     uint64                 `json:"index"`
	Term      uint64                 `json:"term"`
	Kind      cluster.RecordKind     `json:"kind"`
	Time      *time.Time             `json:"time,omitempty"`
	Actor     model.Actor            `json:"actor,omitempty"`
	RequestID model.RequestID        `json:"request_id,omitempty"`
	Bytes     int                    `json:"bytes"`
	Commands  []commandView          `json:"commands,omitempty"`
	Servers   []cluster.StoredMember `json:"servers,omitempty"`
	Error     *model.Error           `json:"error,omitempty"`
}

// commandView is one command of a listed entry. Group is the number of the command's group in the entry, from 1.
type commandView struct {
	Kind    string   `json:"kind"`
	Group   int      `json:"group"`
	Objects []string `json:"objects"`
}

func viewRecord(r cluster.LogRecord) recordView {
	v := recordView{Index: r.Index, Term: r.Term, Kind: r.Kind, Bytes: r.Bytes, Servers: r.Servers, Error: r.Err,
		Actor: r.Entry.Actor, RequestID: r.Entry.Request}
	if !r.Time.IsZero() {
		at := r.Time.UTC()
		v.Time = &at
	}
	for i, group := range r.Entry.Groups {
		for _, c := range group {
			v.Commands = append(v.Commands,
				commandView{Kind: fsm.KindName(c.Kind()), Group: i + 1, Objects: append([]string{}, fsm.Objects(c)...)})
		}
	}
	return v
}

// recordFilter selects entries of the log.
type recordFilter struct {
	from, to, last uint64
	kinds          []string
	objects        []string
}

// takes reports whether an entry matches the kinds and objects of the filter. A damaged entry always matches, because
// its commands are unknown.
func (f *recordFilter) takes(v recordView) bool {
	if v.Error != nil || len(f.kinds) == 0 && len(f.objects) == 0 {
		return true
	}
	kind := len(f.kinds) == 0 || slices.Contains(f.kinds, string(v.Kind))
	object := len(f.objects) == 0
	for _, c := range v.Commands {
		kind = kind || slices.Contains(f.kinds, c.Kind)
		for _, subject := range c.Objects {
			_, id, _ := strings.Cut(subject, "/")
			object = object || slices.Contains(f.objects, subject) || slices.Contains(f.objects, id)
		}
	}
	return kind && object
}

// logView is the listed part of a log. First and Last are the bounds of the whole log.
type logView struct {
	Server cluster.StoppedServer `json:"server"`
	First  uint64                `json:"first"`
	Last   uint64                `json:"last"`
	Items  []recordView          `json:"items"`
	Index  uint64                `json:"index"`
}

// DebugLog returns the command debug log.
func DebugLog(t *term.Console) *cobra.Command {
	filter := recordFilter{}
	cmd := &cobra.Command{
		Use: "log DATA_DIR", Short: "list the entries in the log of a stopped server", Args: term.Exactly("DATA_DIR"),
		Example: "outspan debug log /var/lib/outspan --last 20\noutspan debug log /var/lib/outspan --object instance/3k9f " +
			"--from 4000\noutspan debug log /var/lib/outspan --kind configuration",
		Long: `Lists what the log holds: commands with the objects that they name, and the entries of raft itself (noop, barrier, configuration). The server must be
stopped; nothing in its directory changes. Whether the newest entries were committed, no server alone knows: what the others don't have
is given up when it starts again. An entry that can't be read is listed as damaged, the others are not held up by it, and the exit code is not 0.`,
		RunE: func(_ *cobra.Command, args []string) error { return readLog(t, args[0], &filter) },
	}
	f := cmd.Flags()
	f.Uint64Var(&filter.from, "from", 0, "first index")
	f.Uint64Var(&filter.to, "to", 0, "last index")
	f.Uint64Var(&filter.last, "last", 0, "only so many, the newest")
	f.StringSliceVar(&filter.kinds, "kind", nil,
		"only entries with such a command, such as instance.place, or of such a kind: command, noop, barrier, configuration")
	f.StringSliceVar(&filter.objects, "object", nil,
		"only entries that name this object: an id, or a subject such as node/n1")
	return cmd
}

func readLog(t *term.Console, path string, filter *recordFilter) error {
	if filter.to == 0 {
		filter.to = math.MaxUint64
	}
	if filter.from > filter.to {
		return term.Usage("--from %d is greater than --to %d", filter.from, filter.to)
	}
	dir, err := cluster.OpenStopped(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // nothing was written to it
	bounds, err := dir.Bounds()
	if err != nil {
		return err
	}
	v := logView{Server: dir.Server(), First: bounds.First, Last: bounds.Last, Items: []recordView{}, Index: bounds.Last}
	var bad []*model.Error
	for r, err := range dir.Records(filter.from, filter.to) {
		if err != nil {
			return err
		}
		one := viewRecord(r)
		if !filter.takes(one) {
			continue
		}
		v.Items = append(v.Items, one)
		if filter.last > 0 && uint64(len(v.Items)) > filter.last {
			v.Items = v.Items[1:]
		}
	}
	for _, one := range v.Items {
		if one.Error != nil {
			bad = append(bad, one.Error)
		}
	}
	if err := showLog(t, v); err != nil {
		return err
	}
	if len(bad) > 1 {
		return &model.Error{Code: bad[0].Code,
			Message: fmt.Sprintf("%d entries can't be read; the first: %s", len(bad), bad[0].Message), Hint: bad[0].Hint}
	}
	if len(bad) == 1 {
		return bad[0]
	}
	return nil
}

func showLog(t *term.Console, v logView) error {
	names := make([]string, len(v.Items))
	for i, one := range v.Items {
		names[i] = fmt.Sprint(one.Index)
	}
	s, err := term.ResultOf(v, names, func(p *term.Page) {
		term.Rows(p, v.Items, []term.Column[recordView]{
			{Head: "index", Cell: func(r recordView) string { return fmt.Sprint(r.Index) }},
			{Head: "term", Cell: func(r recordView) string { return fmt.Sprint(r.Term) }},
			{Head: "time", Cell: func(r recordView) string { return term.Stamp(r.Time) }},
			{Head: "actor", Cell: func(r recordView) string { return string(r.Actor) }},
			{Head: "request", Cell: func(r recordView) string { return string(r.RequestID) }},
			{Head: "bytes", Wide: true, Cell: func(r recordView) string { return fmt.Sprint(r.Bytes) }},
			{Head: "what", Cell: func(r recordView) string { return r.what(p.Wide) }},
		})
	})
	if err != nil {
		return err
	}
	return t.Show(s)
}

// what returns the text for the column of that name: the commands with their objects, the servers of a configuration,
// or why the entry can't be read.
func (r recordView) what(wide bool) string {
	const most = 3
	switch {
	case r.Error != nil:
		return string(r.Kind) + ": " + r.Error.Message
	case r.Kind == cluster.RecordConfiguration:
		var servers []string
		for _, s := range r.Servers {
			text := string(s.ID) + "@" + s.Address
			if !s.Voter {
				text += " (no vote)"
			}
			servers = append(servers, text)
		}
		return "configuration " + strings.Join(servers, ", ")
	case r.Kind != cluster.RecordCommand:
		return string(r.Kind)
	}
	var parts []string
	for _, c := range r.Commands {
		objects := c.Objects
		if !wide {
			objects = objects[:min(2, len(objects))]
		}
		parts = append(parts, strings.TrimSpace(c.Kind+" "+strings.Join(objects, " ")))
	}
	if more := len(parts) - most; more > 0 && !wide {
		parts = append(parts[:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}
