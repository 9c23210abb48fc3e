package linear

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	rack = Key{Register, "n1", "rack"}
	web  = Key{Job, "web", ""}
)

// at returns an operation with its begin and end in milliseconds. An operation with an unknown outcome never ends.
func at(client, begin, end int, a Ask, got Answer) Op {
	o := Op{client, time.Duration(begin) * time.Millisecond, time.Duration(end) * time.Millisecond, a, got}
	if got.Outcome == Unknown {
		o.End = Never
	}
	return o
}

func written1(client, begin, end int, value string, outcome Outcome, index uint64) Op {
	return at(client, begin, end, Ask{Key: rack, Action: Write, Value: value}, Answer{Outcome: outcome, Index: index})
}

func readOf(client, begin, end int, level Level, value string, index uint64) Op {
	return at(client, begin, end, Ask{Key: rack, Action: Read, Level: level},
		Answer{Outcome: Done, Value: value, Index: index})
}

func submit(client, begin, end int, value string, outcome Outcome, index uint64) Op {
	return at(client, begin, end, Ask{Key: web, Action: Write, Value: value}, Answer{Outcome: outcome, Index: index})
}

func swap(client, begin, end int, value string, ifIndex uint64, outcome Outcome, index, now uint64) Op {
	return at(client, begin, end, Ask{Key: web, Action: Swap, Value: value, IfIndex: ifIndex},
		Answer{Outcome: outcome, Index: index, At: now})
}

func readJob(client, begin, end int, value string, index, changed, version uint64) Op {
	return at(client, begin, end, Ask{Key: web, Action: Read, Level: Consistent},
		Answer{Outcome: Done, Value: value, Index: index, At: changed, Version: version})
}

func older(o Op, age time.Duration) Op {
	o.Age = age
	return o
}

func waiting(o Op, after uint64, wait time.Duration) Op {
	o.After, o.Wait = after, wait
	return o
}

// Judge must find each kind of violation, and accept correct histories. A judge that finds nothing would prove nothing.
func TestJudge(t *testing.T) {
	tests := []struct {
		name string
		ops  []Op
		want []string // how the violations begin, in order
	}{
		{"nothing", nil, nil},
		{"right",
			[]Op{written1(0, 0, 2, "a", Done, 5), readOf(1, 1, 3, Consistent, "", 4), readOf(1, 4, 5, Consistent, "a", 7)}, nil},
		{"stale consistent read",
			[]Op{written1(0, 0, 2, "a", Done, 5), written1(0, 3, 4, "b", Done, 6), readOf(1, 5, 6, Consistent, "a", 5)},
			[]string{"LIN: a consistent read misses", "LIN: no order explains"}},
		{"stale consistent read that lies about its index",
			[]Op{written1(0, 0, 2, "a", Done, 5), written1(0, 3, 4, "b", Done, 6), readOf(1, 5, 6, Consistent, "a", 9)},
			[]string{"S4: a read does not show", "LIN: no order explains"}},
		{"back in time",
			[]Op{written1(0, 0, 9, "a", Unknown, 0), readOf(1, 1, 2, Consistent, "a", 5), readOf(2, 3, 4, Consistent, "", 6)},
			[]string{"LIN: no order explains"}},
		{"unknown, and late",
			[]Op{written1(0, 0, 1, "a", Unknown, 0), readOf(1, 2, 3, Consistent, "", 4),
				readOf(1, 900, 901, Consistent, "a", 5)}, nil},
		{"unknown, and never", []Op{written1(0, 0, 1, "a", Unknown, 0), readOf(1, 2, 3, Consistent, "", 4),
			readOf(1, 900, 901, Consistent, "", 5)}, nil},
		{"from nowhere", []Op{readOf(1, 2, 3, Stale, "x", 4)}, []string{"S4: a value that nobody has written"}},
		{"lost", []Op{written1(0, 0, 1, "a", Done, 5), readOf(1, 2, 3, Stale, "", 6)}, []string{"S4: a read does not show"}},
		{"from the future", []Op{written1(0, 0, 9, "a", Done, 5), readOf(1, 2, 3, Stale, "a", 4)},
			[]string{"LIN: a read shows what was written at index 5, after"}},
		{"one index twice", []Op{written1(0, 0, 1, "a", Done, 5), written1(0, 2, 3, "b", Done, 5)},
			[]string{"S4: two writes"}},
		{"old and says so",
			[]Op{written1(0, 0, 1, "a", Done, 5), older(readOf(1, 3000, 3001, Stale, "", 4), 2990*time.Millisecond)}, nil},
		{"older than it says",
			[]Op{written1(0, 0, 1, "a", Done, 5), older(readOf(1, 3000, 3001, Stale, "", 4), 20*time.Millisecond)},
			[]string{"AGE: a stale read"}},
		{"default within the lease", []Op{written1(0, 0, 1, "a", Done, 5), readOf(1, 400, 401, Default, "", 4)}, nil},
		{"default beyond the lease", []Op{written1(0, 0, 1, "a", Done, 5), readOf(1, 700, 701, Default, "", 4)},
			[]string{"AGE: a default read"}},
		{"waited", []Op{waiting(readOf(1, 0, 100, Stale, "", 4), 5, 100*time.Millisecond)}, nil},
		{"did not wait", []Op{waiting(readOf(1, 0, 50, Stale, "", 4), 5, 100*time.Millisecond)}, []string{"WAIT:"}},
		{"swaps", []Op{
			submit(0, 0, 1, "a", Done, 5), swap(1, 2, 5, "b", 5, Done, 6, 0), swap(2, 2, 6, "c", 5, Conflict, 7, 6),
			readJob(0, 7, 8, "b", 8, 6, 2),
			swap(1, 9, 10, "d", 6, Unknown, 0, 0), readJob(0, 11, 12, "d", 9, 9, 3), swap(0, 13, 14, "e", 9, Done, 10, 0),
			readJob(0, 15, 16, "e", 11, 10, 4),
		}, nil},
		{"both swaps",
			[]Op{submit(0, 0, 1, "a", Done, 5), swap(1, 2, 5, "b", 5, Done, 6, 0), swap(2, 2, 6, "c", 5, Done, 7, 0)},
			[]string{"LIN: no order explains"}},
		{"conflict without a reason", []Op{submit(0, 0, 1, "a", Done, 5), swap(1, 2, 5, "b", 5, Conflict, 6, 0)},
			[]string{"LIN: no order explains"}},
		{"version twice", []Op{submit(0, 0, 1, "a", Done, 5), submit(0, 2, 3, "b", Done, 6), readJob(1, 0, 3, "a", 5, 5, 1),
			readJob(1, 4, 5, "b", 6, 6, 1)}, []string{"S8: version 1 of job web", "LIN: no order explains"}},
		{"carried out twice", []Op{submit(0, 0, 1, "a", Done, 5), readJob(1, 4, 5, "a", 7, 6, 2)},
			[]string{"S4: job web has 2 versions", "LIN: no order explains"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := NewHistory()
			for _, o := range test.ops {
				h.Add(o)
			}
			v := h.Judge(Bounds{Default: 500 * time.Millisecond, Slack: 50 * time.Millisecond}, "")
			if len(v.Undecided) > 0 || len(v.Violations) != len(test.want) {
				t.Fatalf("%d violations, want %d:\n%s", len(v.Violations), len(test.want), strings.Join(v.Violations, "\n"))
			}
			for i, want := range test.want {
				if !strings.HasPrefix(v.Violations[i], want) {
					t.Errorf("violation %q does not begin with %q", v.Violations[i], want)
				}
			}
		})
	}
}

// long returns a correct history of n operations on one register. Some operations have an unknown outcome.
func long(n int) []Op {
	var ops []Op
	index := uint64(1)
	value := ""
	for i := range n {
		begin := 10 * i
		index++
		switch i % 5 {
		case 0:
			value = fmt.Sprint("v", i)
			ops = append(ops, written1(i%7, begin, begin+15, value, Done, index))
		case 3:
			ops = append(ops, written1(i%7, begin, begin+5, fmt.Sprint("lost", i), Unknown, 0))
		default:
			ops = append(ops, readOf(i%7, begin+6, begin+20, Consistent, value, index))
		}
	}
	return ops
}

// Judge finds one bad read among 2,000 operations. It shows the read with the few operations that the read contradicts,
// and draws a picture.
func TestMinimalHistory(t *testing.T) {
	ops := long(2000)
	const bad = 1001 // the read that follows write 1000
	ops[bad].Answer.Value = ops[995].Ask.Value
	h := NewHistory()
	for _, o := range ops {
		h.Add(o)
	}
	dir := t.TempDir()
	v := h.Judge(Bounds{}, dir)
	at := slices.IndexFunc(v.Violations, func(text string) bool {
		return strings.HasPrefix(text, "LIN: no order explains")
	})
	if len(v.Undecided) > 0 || at < 0 {
		t.Fatalf("%v %v", v.Undecided, v.Violations)
	}
	if lines := strings.Count(v.Violations[at], "\n  ["); lines < 2 || lines > 4 {
		t.Errorf("%d operations are shown:\n%s", lines, v.Violations[at])
	}
	if picture, err := os.ReadFile(filepath.Join(dir, "linear-label-n1.rack.html")); err != nil ||
		!strings.Contains(string(picture), "<html") {
		t.Errorf("no picture: %v", err)
	}
}
