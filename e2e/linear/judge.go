package linear

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Bounds limit the age of default and stale reads, and the time of the search.
type Bounds struct {
	// Default is how long an acknowledged write may be missing from default reads. It is the leader's lease.
	Default time.Duration
	// Slack is how much older a stale read may be than it states.
	Slack time.Duration
	// Check is the longest real time of the search for an order, for each key; default 30 s.
	Check time.Duration
}

// Verdict is the result of judging a history.
type Verdict struct {
	Violations []string // each begins with the id of the broken invariant
	Undecided  []string // messages about keys whose search took too long; a test fails if there are any
	Figures    Figures
}

// Figures show how much the history covered.
type Figures struct {
	Requests, Operations, Keys         int
	Writes, Conflicts, Unknown, Reads  int
	Weaker, Repeated, WithoutEffect    int
	Resolved                           int
	OldestDefault, OldestStale, Checks time.Duration // greatest ages of reads, and time that the search took
}

func (f Figures) String() string {
	return fmt.Sprintf("%d requests, %d operations on %d keys: %d writes done, %d conflicts, %d of unknown outcome to "+
		"the end and %d until then, %d consistent and %d weaker reads; %d answered writes repeated elsewhere, %d without "+
		"effect or answer; the oldest default read missed %s, the oldest stale one %s; searched for %s",
		f.Requests, f.Operations, f.Keys, f.Writes, f.Conflicts, f.Unknown, f.Resolved, f.Reads, f.Weaker, f.Repeated,
		f.WithoutEffect, f.OldestDefault, f.OldestStale, f.Checks.Round(time.Millisecond))
}

// Judge judges a history after its last operation was added. It must not run in fake time, because real time bounds the
// search. If no order explains the operations on a key and dir is not empty, Judge writes a picture of them into dir.
func (h *History) Judge(b Bounds, dir string) Verdict {
	b.Check = cmp.Or(b.Check, 30*time.Second)
	ops := h.Ops()
	keys := judged(ops)
	v := Verdict{Figures: h.figures(ops, len(keys))}
	h.mu.Lock()
	v.Violations = slices.Clone(h.faults)
	h.mu.Unlock()
	v.Violations = append(v.Violations, versions(ops)...)
	v.Violations = append(v.Violations, contents(ops)...)
	v.Violations = append(v.Violations, ages(ops, b, &v.Figures)...)
	v.Violations = append(v.Violations, waits(ops)...)
	began := time.Now()
	for _, key := range slices.SortedFunc(maps.Keys(keys), func(a, b Key) int {
		return strings.Compare(a.String(), b.String())
	}) {
		result, info := porcupine.CheckOperationsVerbose(model(), forChecker(keys[key]), b.Check)
		switch result {
		case porcupine.Illegal:
			v.Violations = append(v.Violations, explain(key, keys[key], info, dir))
		case porcupine.Unknown:
			v.Undecided = append(v.Undecided,
				fmt.Sprintf("no verdict on the %d operations of %s within %s", len(keys[key]), key, b.Check))
		}
	}
	v.Figures.Checks = time.Since(began)
	return v
}

func (h *History) figures(ops []Op, keys int) Figures {
	h.mu.Lock()
	f := Figures{Requests: h.counts.requests, Operations: len(ops), Keys: keys, Repeated: h.counts.repeated,
		WithoutEffect: h.counts.nothing, Resolved: h.counts.resolved}
	h.mu.Unlock()
	for _, o := range ops {
		switch {
		case o.Outcome == Unknown:
			f.Unknown++
		case o.Outcome == Conflict:
			f.Conflicts++
		case o.Action != Read:
			f.Writes++
		case o.Level == Consistent:
			f.Reads++
		default:
			f.Weaker++
		}
	}
	return f
}

// explain describes a key whose operations no order explains. It lists the few operations that suffice for a
// contradiction, and draws all operations into a file in dir, unless dir is empty.
func explain(key Key, ops []Op, info porcupine.LinearizationInfo, dir string) string {
	few := shrink(ops, 20*time.Second)
	text := fmt.Sprintf("LIN: no order explains what was done to %s (%d operations); these alone can't be explained:",
		key, len(ops))
	for _, o := range few {
		text += "\n  " + o.String()
	}
	if dir == "" {
		return text
	}
	name := strings.NewReplacer(" ", "-", "/", "-").Replace(key.String())
	path := filepath.Join(dir, "linear-"+name+".html")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return text + "\n  no picture: " + err.Error()
	}
	if err := porcupine.VisualizePath(model(), info, path); err != nil {
		return text + "\n  no picture: " + err.Error()
	}
	return text + "\n  all of them: " + path
}

// shrink removes operations that are not needed for a contradiction, as many as it finds within the time limit. First
// it removes operations after the contradiction, then reads and conflicts, and then writes on which no remaining
// operation depends.
func shrink(ops []Op, limit time.Duration) []Op {
	until := time.Now().Add(limit)
	illegal := func(some []Op) bool {
		left := time.Until(until)
		return left > 0 &&
			porcupine.CheckOperationsTimeout(model(), forChecker(some), min(left, 2*time.Second)) == porcupine.Illegal
	}
	ops = firstContradiction(ops, illegal)
	for size := max(1, len(ops)/2); size > 0; size /= 2 { // removes reads and conflicts, first many at a time
		for i := 0; i < len(ops); {
			end := min(i+size, len(ops))
			rest := slices.Concat(ops[:i], slices.DeleteFunc(slices.Clone(ops[i:end]), func(o Op) bool {
				return o.Action == Read || o.Outcome == Conflict
			}), ops[end:])
			if len(rest) < len(ops) && illegal(rest) {
				ops = rest
				continue
			}
			i = end
		}
	}
	for i := 0; i < len(ops); { // removes writes on which no other operation depends
		o := ops[i]
		rest := slices.DeleteFunc(slices.Clone(ops), func(p Op) bool {
			return p.Action != Read && p.Ask.Value == o.Ask.Value
		})
		if o.Action != Read && !shown(ops, o) && illegal(rest) {
			ops = rest
			continue
		}
		i++
	}
	return ops
}

// shown reports whether an operation in ops depends on the write w, so that removing w alone would make a new
// contradiction. A read of a job's version depends on all writes of the job.
func shown(ops []Op, w Op) bool {
	return slices.ContainsFunc(ops, func(o Op) bool {
		return o.Action == Read && o.Answer.Value == w.Ask.Value || w.At != 0 && o.Action == Swap && o.IfIndex == w.At ||
			o.Key.Kind == Job && o.Action == Read && o.Version > 0
	})
}

// firstContradiction returns the operations up to the first answer that contradicts the operations before it. If
// illegal finds no contradiction in time, it returns all operations.
func firstContradiction(ops []Op, illegal func([]Op) bool) []Op {
	ends := make([]time.Duration, 0, len(ops))
	for _, o := range ops {
		if o.End != Never {
			ends = append(ends, o.End)
		}
	}
	slices.Sort(ends)
	low, high := 0, len(ends)-1
	for low < high {
		if mid := (low + high) / 2; illegal(until(ops, ends[mid])) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	if len(ends) == 0 {
		return ops
	}
	if cut := until(ops, ends[low]); illegal(cut) {
		return cut
	}
	return ops
}

// until returns the operations that began by the time end. It omits reads and conflicts that were not answered by end.
// Other writes that were not answered by end get the outcome Unknown.
func until(ops []Op, end time.Duration) []Op {
	var out []Op
	for _, o := range ops {
		switch {
		case o.Begin > end:
		case o.End <= end:
			out = append(out, o)
		case o.Action != Read && o.Outcome != Conflict:
			o.End, o.Outcome = Never, Unknown
			out = append(out, o)
		}
	}
	return out
}
