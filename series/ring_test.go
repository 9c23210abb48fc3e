package series

import (
	"slices"
	"testing"
	"time"
)

// A ring keeps the newest steps and gives up the oldest. A step that nobody sampled stays a gap, also where an older
// sample was in its place.
func TestRingWraps(t *testing.T) {
	r := newRing(layout{step: time.Second, width: 2, block: 4, blocks: 3})
	read := func(first, end int64) (all []float32) {
		for slot := first; slot < end; slot++ {
			if v := r.get(slot, 1); isUnknown(v) {
				all = append(all, -1)
			} else {
				all = append(all, v)
			}
		}
		return all
	}
	if got := read(0, 3); !slices.Equal(got, []float32{-1, -1, -1}) || r.bytes() != 0 {
		t.Errorf("an empty ring has %v and %d bytes", got, r.bytes())
	}
	for slot := int64(100); slot < 112; slot++ {
		r.set(slot, 1, float32(slot))
		r.set(slot, 0, 7)
	}
	if got := read(99, 113); !slices.Equal(got, []float32{-1, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111,
		-1}) {
		t.Errorf("%v", got)
	}
	r.set(114, 1, 114) // 100 to 103 give way; 112 and 113 are gaps, not what was in their places
	if got := read(99, 115); !slices.Equal(got, []float32{-1, -1, -1, -1, -1, 104, 105, 106, 107, 108, 109, 110, 111, -1,
		-1, 114}) {
		t.Errorf("after the wrap: %v", got)
	}
	r.set(101, 1, 5) // too old
	r.fill(102, 1, 5)
	r.fill(113, 1, 5)
	r.fill(114, 1, 5) // known
	r.fill(105, 1, unknown())
	if got := read(99, 115); !slices.Equal(got, []float32{-1, -1, -1, -1, -1, 104, 105, 106, 107, 108, 109, 110, 111, -1,
		5, 114}) {
		t.Errorf("after filling: %v", got)
	}
	if got := r.size(); got != 8 {
		t.Errorf("it keeps %d steps", got)
	}
	r.set(1<<40, 1, 1)
	if got := r.bytes(); got != 3*4*2*4 {
		t.Errorf("it takes %d bytes", got)
	}
}

// A longer step has the mean or the largest of what is known.
func TestRingOver(t *testing.T) {
	r := newRing(layout{step: time.Second, width: 1, block: 4, blocks: 3})
	r.set(0, 0, -3)
	r.set(2, 0, -1)
	for _, c := range []struct {
		first, end int64
		largest    bool
		want       float32
	}{{0, 4, false, -2}, {0, 4, true, -1}, {0, 1, true, -3}, {2, 3, false, -1}} {
		if got := r.over(c.first, c.end, 0, c.largest); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if got := r.over(3, 9, 0, true); !isUnknown(got) {
		t.Errorf("a gap has %v", got)
	}
}

// Samples allocate no memory beside new blocks, and a full Recorder stays within its bound.
func TestBounds(t *testing.T) {
	r := newRing(fixedLayout)
	slot := int64(0)
	if n := testing.AllocsPerRun(1000, func() {
		for column := range columns {
			r.set(slot%600, column, 1)
		}
		slot++
	}); n > 0.1 {
		t.Errorf("a sample allocates %v times", n)
	}
	day := int64(24 * time.Hour / Step)
	if fixedLayout.size() != day || columns > 48 || day != 8640 {
		t.Errorf("%d samples of %d series", fixedLayout.size(), columns)
	}
	full := New(Config{Server: "s1"})
	fillAll := func(r *ring) {
		for b := range int64(r.blocks) {
			r.set(b*int64(r.block), 0, 1)
		}
	}
	fillAll(&full.fixed)
	jobs, nodes := map[string]int{}, 0
	for i := range 3 * nodesKept {
		jobs[string(rune(i+1000))] = i
		nodes++
	}
	b := newBoard[string](jobLayout, jobsKept)
	b.keep(jobs)
	if len(b.rings) != jobsKept {
		t.Errorf("it keeps %d jobs", len(b.rings))
	}
	one := newRing(jobLayout)
	fillAll(&one)
	other := newRing(nodeLayout)
	fillAll(&other)
	total := full.Bytes() + jobsKept*one.bytes() + nodesKept*other.bytes()
	t.Logf("%d bytes: %d of %d series, %d of %d jobs, %d of %d nodes", total, full.Bytes(), columns,
		jobsKept*one.bytes(), jobsKept, nodesKept*other.bytes(), nodesKept)
	if total > 4<<20 {
		t.Errorf("a full Recorder has %d bytes of samples", total)
	}
}

// The largest objects are kept. One that is kept gives way only to a larger one.
func TestBoardKeepsTheLargest(t *testing.T) {
	b := newBoard[string](layout{step: time.Second, width: 1, block: 4, blocks: 3}, 2)
	kept := func() (all []string) { return b.after("", 10) }
	b.keep(map[string]int{"b": 1, "c": 1})
	b.rings["b"].set(1, 0, 5)
	b.keep(map[string]int{"a": 1, "b": 1, "c": 1})
	if got := kept(); !slices.Equal(got, []string{"b", "c"}) || b.rings["b"].get(1, 0) != 5 {
		t.Errorf("kept %v", got)
	}
	b.keep(map[string]int{"a": 3, "b": 2, "c": 1})
	if got := kept(); !slices.Equal(got, []string{"a", "b"}) || b.rings["b"].get(1, 0) != 5 {
		t.Errorf("kept %v", got)
	}
	b.keep(map[string]int{"c": 1})
	if got := kept(); !slices.Equal(got, []string{"c"}) {
		t.Errorf("kept %v", got)
	}
	b.keep(map[string]int{"a": 1, "c": 1})
	if got := b.after("a", 1); !slices.Equal(got, []string{"c"}) || len(b.after("c", 5)) != 0 {
		t.Errorf("after a: %v", got)
	}
}
