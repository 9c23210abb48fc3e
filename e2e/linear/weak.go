package linear

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"
)

type change struct {
	index uint64
	op    Op
}

// changes returns the acknowledged writes of each key, sorted by index. The second map has the index at which each
// value was written, or 0 if no answer shows that index.
func changes(ops []Op) (map[Key][]change, map[Key]map[string]uint64) {
	byKey, where := map[Key][]change{}, map[Key]map[string]uint64{}
	for _, o := range ops {
		if where[o.Key] == nil {
			where[o.Key] = map[string]uint64{}
		}
		switch {
		case o.Action == Read && o.Key.Kind == Job && o.Answer.Value != "":
			where[o.Key][o.Answer.Value] = o.At
		case o.Action != Read && o.Outcome == Done:
			where[o.Key][o.Ask.Value] = o.Index
			byKey[o.Key] = append(byKey[o.Key], change{o.Index, o})
		case o.Action != Read && o.Outcome == Unknown:
			if _, ok := where[o.Key][o.Ask.Value]; !ok {
				where[o.Key][o.Ask.Value] = 0
			}
		}
	}
	for _, all := range byKey {
		slices.SortFunc(all, func(a, b change) int { return cmp.Compare(a.index, b.index) })
	}
	return byKey, where
}

// contents checks the values of all reads, at every level. A client must have written the value (S4), at an index that
// is not above the read's (LIN). The read must not miss a later acknowledged write whose index is not above the read's
// (S4). Two writes to one key must not have the same index (S4).
func contents(ops []Op) (bad []string) {
	byKey, where := changes(ops)
	for key, all := range byKey {
		for i := 1; i < len(all); i++ {
			if all[i-1].index == all[i].index {
				bad = append(bad,
					fmt.Sprintf("S4: two writes to %s got index %d:\n  %s\n  %s", key, all[i].index, all[i-1].op, all[i].op))
			}
		}
	}
	for _, o := range ops {
		if o.Action != Read || o.Index == 0 {
			continue
		}
		written, known := where[o.Key][o.Answer.Value]
		switch {
		case o.Answer.Value != "" && !known:
			bad = append(bad, fmt.Sprintf("S4: a value that nobody has written, or that was refused:\n  %s", o))
			continue
		case written > o.Index:
			bad = append(bad, fmt.Sprintf("LIN: a read shows what was written at index %d, after its own:\n  %s", written, o))
			continue
		case o.Answer.Value != "" && written == 0:
			continue // the write's outcome is unknown, and reads of a label don't show the index of the write
		}
		all := byKey[o.Key]
		last := sort.Search(len(all), func(i int) bool { return all[i].index > o.Index }) - 1
		if last >= 0 && all[last].index > written {
			bad = append(bad,
				fmt.Sprintf("S4: a read does not show the last acknowledged write up to its index:\n  %s\n  %s", all[last].op, o))
		}
	}
	return bad
}

// versions checks S8 for the versions of jobs: no version number is used twice, and a later version has a later index.
// It also runs amounts.
func versions(ops []Op) (bad []string) {
	type versionOf struct {
		key     Key
		version uint64
	}
	seen := map[versionOf]Op{}
	perKey := map[Key][]Op{}
	for _, o := range ops {
		if o.Key.Kind != Job || o.Action != Read || o.Version == 0 {
			continue
		}
		id := versionOf{o.Key, o.Version}
		first, known := seen[id]
		if !known {
			seen[id] = o
			perKey[o.Key] = append(perKey[o.Key], o)
			continue
		}
		if first.At != o.At || first.Answer.Value != o.Answer.Value {
			bad = append(bad, fmt.Sprintf("S8: version %d of %s was given twice:\n  %s\n  %s", o.Version, o.Key, first, o))
		}
	}
	for key, all := range perKey {
		slices.SortFunc(all, func(a, b Op) int { return cmp.Compare(a.Version, b.Version) })
		for i := 1; i < len(all); i++ {
			if all[i].At <= all[i-1].At {
				bad = append(bad, fmt.Sprintf("S8: a later version of %s has no later index:\n  %s\n  %s", key, all[i-1], all[i]))
			}
		}
	}
	return append(bad, amounts(ops)...)
}

// amounts checks S4: a job has no more versions than writes that were acknowledged or whose outcome is unknown.
func amounts(ops []Op) (bad []string) {
	type tally struct{ done, unknown, last int }
	jobs := map[Key]*tally{}
	for _, o := range ops {
		if o.Key.Kind != Job {
			continue
		}
		if jobs[o.Key] == nil {
			jobs[o.Key] = &tally{}
		}
		one := jobs[o.Key]
		switch {
		case o.Action == Read:
			one.last = max(one.last, int(o.Version))
		case o.Outcome == Done:
			one.done++
		case o.Outcome == Unknown:
			one.unknown++
		}
	}
	for key, one := range jobs {
		if one.last > one.done+one.unknown {
			bad = append(bad,
				fmt.Sprintf("S4: %s has %d versions after %d changes and %d of unknown outcome: one was carried out twice", key,
					one.last, one.done, one.unknown))
		}
	}
	return bad
}

// known is the highest index that clients had seen by the time end, and the operation that showed this index.
type known struct {
	end   time.Duration
	index uint64
	op    Op
}

// knowledge lists the answers that raised the highest index that clients had seen, sorted by time.
func knowledge(ops []Op) []known {
	ended := slices.DeleteFunc(slices.Clone(ops), func(o Op) bool {
		return o.End == Never || o.Index == 0 || o.Outcome != Done
	})
	slices.SortStableFunc(ended, func(a, b Op) int { return cmp.Compare(a.End, b.End) })
	var out []known
	for _, o := range ended {
		if len(out) == 0 || o.Index > out[len(out)-1].index {
			out = append(out, known{o.End, o.Index, o})
		}
	}
	return out
}

// missed returns the first answer that shows a later state than the read o. The duration is how long before the
// beginning of o this answer arrived, so the state that o shows is at least that old. missed returns false if no answer
// with a later state arrived before o began.
func missed(all []known, o Op) (known, time.Duration, bool) {
	i := sort.Search(len(all), func(i int) bool { return all[i].index > o.Index })
	if i == len(all) || all[i].end >= o.Begin {
		return known{}, 0, false
	}
	return all[i], o.Begin - all[i].end, true
}

// ages checks how old the answers to reads are, and records the greatest ages in f. A consistent read must show
// everything that a client had seen before the read began. A default read may be as old as b.Default. A stale read may
// be older than it states by b.Slack.
func ages(ops []Op, b Bounds, f *Figures) (bad []string) {
	all := knowledge(ops)
	for _, o := range ops {
		if o.Action != Read || o.Index == 0 {
			continue
		}
		what, age, ok := missed(all, o)
		if !ok {
			continue
		}
		switch {
		case o.Level == Consistent:
			bad = append(bad,
				fmt.Sprintf("LIN: a consistent read misses what was known %s before it began:\n  %s\n  %s", age, what.op, o))
		case o.Level == Default:
			f.OldestDefault = max(f.OldestDefault, age)
			if age > b.Default {
				bad = append(bad,
					fmt.Sprintf("AGE: a default read misses what was known %s before it began, the lease is %s:\n  %s\n  %s",
						age, b.Default, what.op, o))
			}
		default:
			f.OldestStale = max(f.OldestStale, age)
			if age > o.Age+b.Slack {
				bad = append(bad,
					fmt.Sprintf("AGE: a stale read says that it is %s old and misses what was known %s before it began:\n  %s\n  %s",
						o.Age, age, what.op, o))
			}
		}
	}
	return bad
}

// waits checks blocking reads: an answer that arrives before the end of Wait must have at least the index After.
func waits(ops []Op) (bad []string) {
	for _, o := range ops {
		if o.Action == Read && o.After > 0 && o.Index > 0 && o.Index < o.After && o.End-o.Begin < o.Wait {
			bad = append(bad, fmt.Sprintf("WAIT: a read that was to wait for index %d answered with %d after %s:\n  %s",
				o.After, o.Index, o.End-o.Begin, o))
		}
	}
	return bad
}
