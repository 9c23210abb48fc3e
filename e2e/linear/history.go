package linear

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// Kind is the kind of an object.
type Kind string

// The kinds of objects.
const (
	Register Kind = "label" // a label of a node: written and read
	Job      Kind = "job"   // a job: written, compared and set by the index of its last change, read
)

// Key names one object. Operations on different objects are judged separately.
type Key struct {
	Kind Kind
	Name string // of the node or job
	Part string // the label
}

func (k Key) String() string {
	if k.Part == "" {
		return string(k.Kind) + " " + k.Name
	}
	return string(k.Kind) + " " + k.Name + "." + k.Part
}

// Action is the kind of request.
type Action string

// The actions.
const (
	Write Action = "write"
	Swap  Action = "swap" // write if the index is still the same
	Read  Action = "read"
)

// Level is how fresh a read must be.
type Level string

// The levels, with the API's names.
const (
	Consistent Level = "consistent"
	Default    Level = "default"
	Stale      Level = "stale"
)

// Outcome is the result of a request.
type Outcome string

// The outcomes.
const (
	Done     Outcome = "done"
	Conflict Outcome = "conflict" // refused when the log entry was applied: the index was another one
	Nothing  Outcome = "nothing"  // certainly not carried out
	Unknown  Outcome = "unknown"
)

// Never is the end of an operation without an answer: a write with an unknown outcome may be carried out at any later
// time.
const Never = time.Duration(math.MaxInt64)

// Ask is a request.
type Ask struct {
	Key     Key
	Action  Action
	Level   Level         // of a read
	Value   string        // to write; every write has a different one
	IfIndex uint64        // of a swap
	After   uint64        // of a blocking read: the index of the client's last answer
	Wait    time.Duration // of a blocking read
	Door    string        // name of the server; several if the request was repeated
	Request string        // id of a write
}

// Answer is the result of a request.
type Answer struct {
	Outcome Outcome
	Value   string        // shown by a read; "" if there is none
	Index   uint64        // of a write: its entry; of a read: that of the state it shows
	At      uint64        // of a job: the index of its last change
	Version uint64        // of a job
	Age     time.Duration // of a read, as the answer states it
	Text    string        // of an error
}

// Op is one operation as its client saw it. Begin and End are times since the beginning of the history.
type Op struct {
	Client     int
	Begin, End time.Duration
	Ask
	Answer
}

// String describes the operation in one line.
func (o Op) String() string {
	end := "never"
	if o.End != Never {
		end = fmt.Sprintf("%.4f", o.End.Seconds())
	}
	line := fmt.Sprintf("[%9.4f %9s] client %-2d %-8s %s: ", o.Begin.Seconds(), end, o.Client, o.Door, o.Key)
	switch o.Action {
	case Read:
		line += fmt.Sprintf("read %s -> %q at index %d", o.Level, o.Answer.Value, o.Index)
		if o.Age > 0 {
			line += fmt.Sprintf(", %s old", o.Age)
		}
		if o.After > 0 {
			line += fmt.Sprintf(", waiting at most %s for something after %d", o.Wait, o.After)
		}
	case Write:
		line += fmt.Sprintf("write %q -> %s", o.Ask.Value, o.Outcome)
	case Swap:
		line += fmt.Sprintf("swap %q if at %d -> %s", o.Ask.Value, o.IfIndex, o.Outcome)
	}
	if o.Action != Read && o.Index > 0 {
		line += fmt.Sprintf(" at index %d", o.Index)
	}
	if o.Key.Kind == Job && o.At > 0 {
		line += fmt.Sprintf(" (version %d of index %d)", o.Version, o.At)
	}
	if o.Text != "" {
		line += " (" + o.Text + ")"
	}
	return line
}

// History collects operations. Safe for many goroutines.
type History struct {
	began time.Time

	mu     sync.Mutex
	ops    []Op
	faults []string // found while the history was recorded
	counts counts
}

// counts counts what is not kept as operations.
type counts struct {
	requests int // sent, repetitions included
	repeated int // answered writes that were sent again through another server
	resolved int // writes of unknown outcome that Settle resolved
	nothing  int // requests that were refused for certain, and reads without an answer
}

// NewHistory starts a history; its time begins now.
func NewHistory() *History { return &History{began: time.Now()} }

func (h *History) now() time.Duration { return time.Since(h.began) }

// Add adds an operation. Operations without effect and reads without an answer are only counted.
func (h *History) Add(o Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o.Outcome == Nothing || o.Action == Read && o.Outcome != Done {
		h.counts.nothing++
		return
	}
	h.ops = append(h.ops, o)
}

func (h *History) count(add func(*counts)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	add(&h.counts)
}

// fault records a violation that is evident without comparing operations.
func (h *History) fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, fmt.Sprintf(format, args...))
}

// open returns the writes of unknown outcome.
func (h *History) open() []Op {
	return slices.DeleteFunc(h.Ops(), func(o Op) bool { return o.Outcome != Unknown })
}

// replace replaces an open write by its resolved operation.
func (h *History) replace(o Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.resolved++
	if i := slices.IndexFunc(h.ops, func(p Op) bool { return p.Action != Read && p.Request == o.Request }); i >= 0 {
		h.ops[i] = o
	}
}

// Ops returns all operations so far, in the order in which they began.
func (h *History) Ops() []Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	ops := slices.Clone(h.ops)
	slices.SortStableFunc(ops, func(a, b Op) int { return int(a.Begin - b.Begin) })
	return ops
}
