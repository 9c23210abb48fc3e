package cluster

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	repeatAfter  = 30 * time.Second // a line of raft about one peer is written at most this often
	repeatedMost = 1000             // lines that are remembered
)

// quietLog is raft's log with fewer repetitions. raft logs a peer that does not answer at every try, several times a
// second. quietLog writes the first line, and then at most one line per repeatAfter, with the number of those left out.
// Two lines are the same if their text and their peer are, whatever the error. It is safe for many goroutines.
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
	left int // lines left out since then
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

// let reports whether a line is to be written now. It adds to the arguments how many such lines were left out.
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

// peerOf returns the peer that the arguments of a line of raft name; "" if they name none.
func peerOf(args []any) string {
	for i := 0; i+1 < len(args); i += 2 {
		switch args[i] {
		case "peer", "server-id", "server-addr", "server-address", "target", "remote-address":
			return fmt.Sprint(args[i+1])
		}
	}
	return ""
}
