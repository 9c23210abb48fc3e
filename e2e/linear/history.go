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
	Job      Kind = "job"   // a job: read, written, and swapped by the index of its last change
)

// Key names one object. The operations on each object are judged separately.
type Key struct {
	Kind Kind
	Name string // name of the node or job
	Part string // name of the label
}

func (k Key) String() string {
	if k.Part == "" {
		return string(k.Kind) + " " + k.Name
	}
	return string(k.Kind) + " " + k.Name + "." + k.Part
}

// Action is the kind of a request.
type Action string

// The actions.
const (
	Write Action = "write"
	Swap  Action = "swap" // a write that is carried out only if the job's last change has the index IfIndex
	Read  Action = "read"
)

// Level is the consistency that a read asks for.
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
	Conflict Outcome = "conflict" // a swap that was refused because the job's last change has another index
	Nothing  Outcome = "nothing"  // a write that was certainly not carried out, or a read without an answer
	Unknown  Outcome = "unknown"  // a write that was perhaps carried out, or may be carried out later
)

// Never is the End of an operation without an answer. If the operation is a write, its outcome is unknown, and it may
// be carried out at any later time.
const Never = time.Duration(math.MaxInt64)

// Ask is a request.
type Ask struct {
	Key     Key
	Action  Action
	Level   Level         // for a read
	Value   string        // for a write; every write has a different value
	IfIndex uint64        // for a swap
	After   uint64        // for a blocking read: highest index that the client has seen in an answer to a read
	Wait    time.Duration // for a blocking read: how long the server may wait
	Door    string        // names of all servers that got the request, separated by commas
	Request string        // request id of a write
}

// Answer is the result of a request.
type Answer struct {
	Outcome Outcome
	Value   string        // value that a read shows, or an empty string
	Index   uint64        // for a write: index of its entry; for a read: index of the state that it shows
	At      uint64        // for a job: index of its last change
	Version uint64        // for a job
	Age     time.Duration // for a read: the age that the answer states
	Text    string        // message of an error
}

// Op is one operation as its client saw it. Begin and End are times since the history began.
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

// History collects operations. It is safe for concurrent use.
type History struct {
	began time.Time

	mu     sync.Mutex
	ops    []Op
	faults []string // see fault
	counts counts
}

// counts are numbers that do not follow from the recorded operations.
type counts struct {
	requests int // all requests that were sent
	repeated int // writes of known outcome that were sent once more
	resolved int // writes of unknown outcome whose outcome Settle found out
	nothing  int // writes that certainly had no effect, and reads without an answer
}

// NewHistory returns an empty history. The times of its operations are relative to this call.
func NewHistory() *History { return &History{began: time.Now()} }

func (h *History) now() time.Duration { return time.Since(h.began) }

// Add adds an operation. A write that certainly had no effect and a read without an answer are counted but not stored.
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

// fault records a violation that is found while operations are recorded.
func (h *History) fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, fmt.Sprintf(format, args...))
}

// open returns the writes whose outcome is unknown.
func (h *History) open() []Op {
	return slices.DeleteFunc(h.Ops(), func(o Op) bool { return o.Outcome != Unknown })
}

// replace replaces a recorded write of unknown outcome with o, which is the same write with its known outcome.
func (h *History) replace(o Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.resolved++
	if i := slices.IndexFunc(h.ops, func(p Op) bool { return p.Action != Read && p.Request == o.Request }); i >= 0 {
		h.ops[i] = o
	}
}

// Ops returns a copy of all operations so far, sorted by Begin.
func (h *History) Ops() []Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	ops := slices.Clone(h.ops)
	slices.SortStableFunc(ops, func(a, b Op) int { return int(a.Begin - b.Begin) })
	return ops
}
