package linear

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// object is the state of one key in the model.
type object struct {
	value   string
	at      uint64 // for a job: index of its last change; 0 if there was no change or loose is true
	version uint64
	loose   bool // the job was changed, but no client knows at which index
}

func (o object) isAt(index uint64) bool { return o.at == index || o.loose }

// step is the specification of registers and jobs. The parameter was is the object's state before the operation o. step
// reports whether o can have its result, and returns the state after o.
func step(was object, o Op) (bool, object) {
	next := object{value: o.Ask.Value, at: o.At, version: was.version + 1, loose: o.At == 0}
	if o.Key.Kind == Register {
		next = object{value: o.Ask.Value}
	}
	switch o.Action {
	case Read:
		same := o.Answer.Value == was.value && o.Version == was.version
		return same && (o.Key.Kind == Register || was.isAt(o.At)), was
	case Write:
		return true, next
	case Swap:
		matches := was.isAt(o.IfIndex)
		switch o.Outcome {
		case Done:
			return matches, next
		case Conflict:
			other := was.loose || was.at != o.IfIndex
			return other && (o.At == 0 || was.isAt(o.At)), was
		}
		if matches {
			return true, next
		}
		return true, was // refused because the index differs, but no client got that answer
	}
	return false, was
}

// model returns step in the form that porcupine needs.
func model() porcupine.Model {
	seed := maphash.MakeSeed()
	return porcupine.Model{
		Init: func() any { return object{} },
		Step: func(state, input, _ any) (bool, any) { return step(state.(object), input.(Op)) },
		Hash: func(state any) uint64 { return maphash.Comparable(seed, state.(object)) },
		DescribeOperation: func(input, _ any) string {
			o := input.(Op)
			return o.String()
		},
		DescribeState: func(state any) string {
			o := state.(object)
			return fmt.Sprintf("%q, version %d of index %d", o.value, o.version, o.at)
		},
	}
}

// judged returns, by key, the operations that must be linearizable: writes and consistent reads. If no answer to a
// write of a job has the index of the change, but a read showed that index, judged fills it in. It omits writes of
// unknown outcome that explain nothing; see complete.
func judged(ops []Op) map[Key][]Op {
	seen := map[Key]map[string]uint64{} // for each value that a read showed: the index of a job's change, 0 for a label
	for _, o := range ops {
		if seen[o.Key] == nil {
			seen[o.Key] = map[string]uint64{}
		}
		if o.Action == Read && o.Answer.Value != "" {
			seen[o.Key][o.Answer.Value] = o.At
		}
	}
	keys := map[Key][]Op{}
	for _, o := range ops {
		if o.Action == Read && o.Level != Consistent {
			continue
		}
		if o.Key.Kind == Job && (o.Action == Write || o.Action == Swap) && o.Outcome != Conflict {
			o.At = o.Index
			if o.At == 0 {
				o.At = seen[o.Key][o.Ask.Value]
			}
		}
		keys[o.Key] = append(keys[o.Key], o)
	}
	for key, all := range keys {
		tighten(all)
		if key.Kind == Register || complete(all) {
			keys[key] = slices.DeleteFunc(all, func(o Op) bool {
				_, read := seen[key][o.Ask.Value]
				return o.Outcome == Unknown && !read
			})
		}
	}
	return keys
}

// tighten narrows the time of writes whose index is known. A write is carried out after all writes with a lower index
// have begun, and before any write with a higher index has ended. The search would take long if writes without an
// answer could be carried out at any time. tighten hides no violation, because a shorter time allows fewer orders.
func tighten(ops []Op) {
	place := func(o Op) uint64 { return max(o.At, o.Index) }
	var writes []int
	for i, o := range ops {
		if (o.Action == Write || o.Action == Swap) && o.Outcome != Conflict && place(o) > 0 {
			writes = append(writes, i)
		}
	}
	slices.SortFunc(writes, func(a, b int) int { return cmp.Compare(place(ops[a]), place(ops[b])) })
	begin := time.Duration(0)
	for _, i := range writes {
		begin = max(begin, ops[i].Begin)
		ops[i].Begin = begin
	}
	end := Never
	for _, i := range slices.Backward(writes) {
		end = min(end, ops[i].End)
		ops[i].End = max(end, ops[i].Begin)
	}
}

// complete reports whether the writes of all versions of a job are known, up to the last version that was read. If they
// are, a write of unknown outcome that no read showed explains nothing. judged omits such writes, because each of them
// doubles the search. Labels have no versions, so judged always omits such writes of labels.
func complete(ops []Op) bool {
	var last Op
	for _, o := range ops {
		if o.Action == Read && o.Version > last.Version {
			last = o
		}
	}
	known := uint64(0)
	for _, o := range ops {
		if o.Action != Read && o.Outcome != Conflict && o.At > 0 && o.At <= last.At {
			known++
		}
	}
	return known == last.Version
}

// forChecker converts operations to porcupine's form. Each operation without an answer gets a client number of its own,
// because for porcupine it never ends, while the client continues with other operations.
func forChecker(ops []Op) []porcupine.Operation {
	out := make([]porcupine.Operation, 0, len(ops))
	lost := 0
	for _, o := range ops {
		lost = max(lost, o.Client+1)
	}
	for _, o := range ops {
		client := o.Client
		if o.End == Never {
			client = lost
			lost++
		}
		out = append(out, porcupine.Operation{ClientId: client, Input: o, Call: int64(o.Begin), Return: int64(o.End)})
	}
	return slices.Clip(out)
}
