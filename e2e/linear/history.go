package linear

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// Kind says what an object is.
type Kind string

// The kinds of objects.
const (
	Register Kind = "label" // a label of a node: written and read
	Job      Kind = "job"   // a job: written, compared and set by the index of its last change, read
)

// Key names one object. What is done to different ones is judged apart.
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

// Action is what was asked for.
type Action string

// The actions.
const (
	Write Action = "write"
	Swap  Action = "swap" // write if the index is still the same
	Read  Action = "read"
)

// Level is how fresh a read has to be.
type Level string

// The levels, under the names of the API.
const (
	Consistent Level = "consistent"
	Default    Level = "default"
	Stale      Level = "stale"
)

// Outcome is what became of a request.
type Outcome string

// The outcomes.
const (
	Done     Outcome = "done"
	Conflict Outcome = "conflict" // refused where the log is applied: the index was another one
	Nothing  Outcome = "nothing"  // certainly not carried out
	Unknown  Outcome = "unknown"
)

// Never is the end of what has none: a write whose outcome stayed unknown may be carried out at any later time.
const Never = time.Duration(math.MaxInt64)

// Ask is a request.
type Ask struct {
	Key     Key
	Action  Action
	Level   Level         // of a read
	Value   string        // to write; no two writes have the same
	IfIndex uint64        // of a swap
	After   uint64        // of a blocking read: the index of the client's last answer
	Wait    time.Duration // of a blocking read
	Door    string        // the server that was asked; several if it was repeated
	Request string        // id of a write
}

// Answer is what a request led to.
type Answer struct {
	Outcome Outcome
	Value   string        // that a read shows; "": there is none
	Index   uint64        // of a write: its entry; of a read: the state that it shows
	At      uint64        // of a job: the index of its last change
	Version uint64        // of a job
	Age     time.Duration // of a read, as it says itself
	Text    string        // of an error
}

// Op is one operation as its client saw it. Begin and End are times since the beginning of the history.
type Op struct {
	Client     int
	Begin, End time.Duration
	Ask
	Answer
}

// String is one line.
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
	faults []string // that showed while it was written
	counts counts
}

// counts are of what is not kept as an operation.
type counts struct {
	requests int // sent, repetitions included
	repeated int // writes that were answered and sent again through another server
	resolved int // writes of unknown outcome whose answer was told at the end
	nothing  int // refused for certain, or not answered reads
}

// NewHistory begins now.
func NewHistory() *History { return &History{began: time.Now()} }

func (h *History) now() time.Duration { return time.Since(h.began) }

// Add takes an operation. Those without any effect or news are only counted.
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

// fault notes a violation that needs no other operation to be seen.
func (h *History) fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, fmt.Sprintf(format, args...))
}

// open are the writes of unknown outcome.
func (h *History) open() []Op {
	return slices.DeleteFunc(h.Ops(), func(o Op) bool { return o.Outcome != Unknown })
}

// replace puts in what became of a write that was open.
func (h *History) replace(o Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.resolved++
	if i := slices.IndexFunc(h.ops, func(p Op) bool { return p.Action != Read && p.Request == o.Request }); i >= 0 {
		h.ops[i] = o
	}
}

// Ops are all operations so far, in the order in which they began.
func (h *History) Ops() []Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	ops := slices.Clone(h.ops)
	slices.SortStableFunc(ops, func(a, b Op) int { return int(a.Begin - b.Begin) })
	return ops
}
