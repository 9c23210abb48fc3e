package fsm

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// TestTableIsPersistent compares each version of a table with a map after all changes are made, and so shows that the
// changes of a fork don't change older versions. It also compares the differences of two versions with those of their
// maps.
func TestTableIsPersistent(t *testing.T) {
	type version struct {
		table Table[string, int]
		rows  map[string]int
	}
	rapid.Check(t, func(t *rapid.T) {
		kept := []version{{rows: map[string]int{}}}
		for i, op := range rapid.SliceOfN(rapid.IntRange(0, 1<<16), 1, 300).Draw(t, "ops") {
			from := kept[op%len(kept)]
			next := version{from.table.fork(nil), map[string]int{}}
			for k, v := range from.rows {
				next.rows[k] = v
			}
			for j := range op % 7 {
				key := fmt.Sprintf("k%03d", (op/7+j*31)%200)
				if (op+j)%3 == 0 {
					next.table.del(key)
					delete(next.rows, key)
				} else {
					next.table.put(key, i)
					next.rows[key] = i
				}
			}
			kept = append(kept, next)
		}
		for i, v := range kept {
			sameRows(t, v.table, v.rows)
			other := kept[(i*7+3)%len(kept)]
			sameDifferences(t, v.table, other.table, v.rows, other.rows)
		}
	})
}

func sameDifferences(t *rapid.T, a, b Table[string, int], before, after map[string]int) {
	want := map[string]rowPair[int]{}
	for _, rows := range []map[string]int{before, after} {
		for key := range rows {
			x, had := before[key]
			y, has := after[key]
			if x != y || had != has {
				want[key] = rowPair[int]{x, y, had, has}
			}
		}
	}
	last, count := "", 0
	for key, row := range differences(a, b) {
		if row != want[key] || key <= last {
			t.Fatalf("%s after %q: %+v, want %+v", key, last, row, want[key])
		}
		last, count = key, count+1
	}
	if count != len(want) {
		t.Fatalf("%d differences, want %d", count, len(want))
	}
}

func sameRows(t *rapid.T, table Table[string, int], want map[string]int) {
	keys := make([]string, 0, len(want))
	for k := range want {
		keys = append(keys, k)
		if got, ok := table.Get(k); !ok || got != want[k] || !table.Has(k) {
			t.Fatalf("row %s is %d, %v, want %d", k, got, ok, want[k])
		}
	}
	slices.Sort(keys)
	var got []string
	for k := range table.All() {
		got = append(got, k)
	}
	if !slices.Equal(got, keys) || table.Len() != len(keys) || table.Has("nothing") {
		t.Fatalf("keys %v, length %d, want %v", got, table.Len(), keys)
	}
	var rest []string
	for k := range table.From("k100") {
		rest = append(rest, k)
	}
	at, _ := slices.BinarySearch(keys, "k100")
	if !slices.Equal(rest, keys[at:]) && len(rest)+len(keys[at:]) > 0 {
		t.Fatalf("from k100: %v, want %v", rest, keys[at:])
	}
	first, _, some := table.Min()
	last, _, _ := table.Max()
	if some != (len(keys) > 0) || some && (first != keys[0] || last != keys[len(keys)-1]) {
		t.Fatalf("min %q, max %q of %v", first, last, keys)
	}
}

func TestEmptyTable(t *testing.T) {
	var table Table[string, int]
	for range table.All() {
		t.Error("a row")
	}
	for range table.From("") {
		t.Error("a row")
	}
	_, _, low := table.Min()
	_, _, high := table.Max()
	if table.Len() != 0 || table.Has("") || low || high {
		t.Error("the zero table is not empty")
	}
	for key := range differences(table, table.fork(nil)) {
		t.Errorf("%q differs", key)
	}
}

// Several goroutines may fork and read a published table at the same time. With -race, this test fails if fork calls
// the library's Copy on the published table itself, because Copy writes to its source.
func TestForksAndReadersOfAPublishedTable(t *testing.T) {
	base := Table[string, int]{}.fork(nil)
	for i := range 1000 {
		base.put(fmt.Sprintf("k%04d", i), i)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for round := range 20 {
				mine := base.fork(nil)
				for i := range 50 {
					mine.put(fmt.Sprintf("k%04d", (i*37+g*round)%1200), -g-1)
					mine.del(fmt.Sprintf("k%04d", (i*53+round)%1000))
				}
				again := mine.fork(nil)
				again.put("x", 1)
				if mine.Has("x") {
					t.Error("a fork wrote to what it came from")
				}
			}
		})
		wg.Go(func() {
			for range 20 {
				sum, n := 0, 0
				for _, v := range base.All() {
					sum, n = sum+v, n+1
				}
				if sum != 999*1000/2 || n != 1000 || base.Len() != 1000 {
					t.Errorf("the published table changed: %d rows, sum %d", n, sum)
				}
			}
		})
	}
	wg.Wait()
}

// A fork shares the trees of tables that it does not write, so a fork of a whole state makes few allocations. Deleting
// a missing row is no write. A write to a fork of a published table does not change the published one.
func TestForkCopiesAtTheFirstWrite(t *testing.T) {
	base := Table[string, int]{}.fork(nil)
	base.put("a", 1)
	fork := base.fork(nil)
	fork.del("b")
	if fork.tree != base.tree {
		t.Error("the fork copied a tree that it does not write")
	}
	fork.put("a", 2)
	if row, _ := base.Get("a"); row != 1 || fork.tree == base.tree {
		t.Errorf("the published table has %d, want 1", row)
	}
	s := NewState()
	if n := testing.AllocsPerRun(10, func() { s.fork() }); n > 2 {
		t.Errorf("a fork of a state makes %v allocations, want 2", n)
	}
}
