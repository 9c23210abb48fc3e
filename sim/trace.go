package sim

import (
	"fmt"
	"runtime/debug"

	"github.com/outspan/outspan/model"
)

// trace hashes everything that happens. If limit is above 0, it also keeps the latest lines of text.
type trace struct {
	sum   uint64
	limit int
	lines []string
	clock func() model.Time
}

func newTrace(lines int) *trace { return &trace{sum: 14695981039346656037, limit: lines} }

// note adds an event to the hash, with its time, kind and numbers.
func (t *trace) note(at model.Time, kind byte, numbers ...uint64) {
	t.add(uint64(at))
	t.add(uint64(kind))
	for _, n := range numbers {
		t.add(n)
	}
}

func (t *trace) add(n uint64) {
	t.sum = (t.sum ^ n) * 1099511628211
	t.sum ^= t.sum >> 29
}

func (t *trace) bytes(data []byte) {
	for _, b := range data {
		t.sum = (t.sum ^ uint64(b)) * 1099511628211
	}
}

func (t *trace) text(s string) {
	for i := range len(s) {
		t.sum = (t.sum ^ uint64(s[i])) * 1099511628211
	}
}

func (t *trace) on() bool { return t.limit > 0 }

// say adds a line to the trace, if lines are kept.
func (t *trace) say(format string, args ...any) {
	if t.limit == 0 {
		return
	}
	if len(t.lines) >= 2*t.limit {
		t.lines = append(t.lines[:0], t.lines[len(t.lines)-t.limit:]...)
	}
	t.lines = append(t.lines, fmt.Sprintf("%10.3fs ", float64(t.clock())/1000)+fmt.Sprintf(format, args...))
}

func (t *trace) last() []string { return t.lines[max(0, len(t.lines)-t.limit):] }

func stack() string { return string(debug.Stack()) }
