package cluster

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	repeatAfter  = 30 * time.Second // the shortest time between two equal lines about one peer
	repeatedMost = 1000             // number of lines that repeats remembers; at this number it forgets all
)

// quietLog is raft's logger with fewer repetitions, because raft logs several times a second that a peer does not
// answer. quietLog writes equal warnings and errors about one peer at most once per repeatAfter. Lines are equal if
// their text and their peer are the same, whatever their other arguments. Safe for concurrent use.
type quietLog struct {
	hclog.Logger
	seen *repeats
}

func newQuietLog(to hclog.Logger) hclog.Logger {
	return quietLog{to, &repeats{last: map[string]repeated{}}}
}

// repeats remembers when each line was written last.
type repeats struct {
	mu   sync.Mutex
	last map[string]repeated
}

type repeated struct {
	at   time.Time
	left int // number of equal lines dropped since then
}

// Warn implements hclog.Logger.
func (q quietLog) Warn(text string, args ...any) {
	if args, ok := q.seen.let(text, args); ok {
		q.Logger.Warn(text, args...)
	}
}

// Error implements hclog.Logger.
func (q quietLog) Error(text string, args ...any) {
	if args, ok := q.seen.let(text, args); ok {
		q.Logger.Error(text, args...)
	}
}

// With implements hclog.Logger.
func (q quietLog) With(args ...any) hclog.Logger { return quietLog{q.Logger.With(args...), q.seen} }

// Named implements hclog.Logger.
func (q quietLog) Named(name string) hclog.Logger { return quietLog{q.Logger.Named(name), q.seen} }

// let reports whether to write a line now, and returns the arguments to write. If it dropped equal lines since the last
// written line, it adds their number to the arguments. A line that names no peer is always written.
func (r *repeats) let(text string, args []any) ([]any, bool) {
	peer := peerOf(args)
	if peer == "" {
		return args, true
	}
	key := text + " " + peer
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.last[key]
	if known && time.Since(was.at) < repeatAfter {
		was.left++
		r.last[key] = was
		return nil, false
	}
	if len(r.last) >= repeatedMost {
		clear(r.last)
	}
	r.last[key] = repeated{at: time.Now()}
	if was.left > 0 {
		args = append(args[:len(args):len(args)], "left_out", was.left)
	}
	return args, true
}

// peerOf returns the peer that the arguments of a line name, or an empty string if they name no peer.
func peerOf(args []any) string {
	for i := 0; i+1 < len(args); i += 2 {
		switch args[i] {
		case "peer", "server-id", "server-addr", "server-address", "target", "remote-address":
			return fmt.Sprint(args[i+1])
		}
	}
	return ""
}
