package fsm

import (
	"cmp"
	"iter"
	"slices"

	"github.com/tidwall/btree"
)

// Table is a persistent ordered table: iteration is in key order, and a copy of the value is a snapshot. Only this file
// knows the tree library.
//
// Rows are replaced, never edited: a row that was put is read-only from then on, and so are its slices and maps. A
// published table is never written, so it is safe for concurrent reads. A fork has one owner, which writes it.
type Table[K cmp.Ordered, V any] struct {
	tree   *btree.Map[K, V]
	undo   *undoLog // of the State that has the table; nil for a table on its own
	shared bool     // tree belongs to the table that this one was forked from; a write copies it first
}

// Get returns the row at key.
func (t Table[K, V]) Get(key K) (row V, ok bool) {
	if t.tree == nil {
		return row, false
	}
	return t.tree.Get(key)
}

// Has reports whether there is a row at key.
func (t Table[K, V]) Has(key K) bool {
	_, ok := t.Get(key)
	return ok
}

// Len returns the number of rows.
func (t Table[K, V]) Len() int {
	if t.tree == nil {
		return 0
	}
	return t.tree.Len()
}

// All iterates over every row in key order.
func (t Table[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if t.tree != nil {
			t.tree.Scan(yield)
		}
	}
}

// From iterates in key order over the rows whose key is at least pivot.
func (t Table[K, V]) From(pivot K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if t.tree != nil {
			t.tree.Ascend(pivot, yield)
		}
	}
}

// Min returns the row with the smallest key. ok is false if the table is empty.
func (t Table[K, V]) Min() (key K, row V, ok bool) {
	if t.tree == nil {
		return key, row, false
	}
	return t.tree.Min()
}

// Max returns the row with the largest key. ok is false if the table is empty.
func (t Table[K, V]) Max() (key K, row V, ok bool) {
	if t.tree == nil {
		return key, row, false
	}
	return t.tree.Max()
}

// rowPair is one key's row in two tables. had and has report whether the table before and the table after have the row.
type rowPair[V any] struct {
	before, after V
	had, has      bool
}

// differences iterates in key order over the keys that only one of two tables has, and over those whose rows differ. It
// takes time in proportion to the number of all rows.
func differences[K cmp.Ordered, V comparable](before, after Table[K, V]) iter.Seq2[K, rowPair[V]] {
	return func(yield func(K, rowPair[V]) bool) {
		a, b := before.cursor(), after.cursor()
		had, has := a.First(), b.First()
		for had || has {
			var key K
			var pair rowPair[V]
			if pair.had = had && (!has || a.Key() <= b.Key()); pair.had {
				key, pair.before = a.Key(), a.Value()
			}
			if pair.has = has && (!had || b.Key() <= a.Key()); pair.has {
				key, pair.after = b.Key(), b.Value()
			}
			if pair.before != pair.after || pair.had != pair.has {
				if !yield(key, pair) {
					return
				}
			}
			if pair.had {
				had = a.Next()
			}
			if pair.has {
				has = b.Next()
			}
		}
	}
}

func (t Table[K, V]) cursor() btree.MapIter[K, V] {
	if t.tree == nil {
		return btree.MapIter[K, V]{}
	}
	return t.tree.Iter()
}

// fork returns a table that can be written while t stays as it is. t must not be written any more. undo, which may be
// nil, records the writes to the fork. Most forks write few tables, so a table copies its tree at the first write.
func (t Table[K, V]) fork(undo *undoLog) Table[K, V] { return Table[K, V]{t.tree, undo, true} }

// own makes the tree one that only this table has.
//
// The library's Copy writes to its source, which would be a race on a published table. So own calls Copy on a local
// copy of the header.
func (t *Table[K, V]) own() {
	switch {
	case t.tree == nil:
		t.tree = new(btree.Map[K, V])
	case t.shared:
		header := *t.tree
		t.tree = header.Copy()
	}
	t.shared = false
}

// put writes a row. It returns the row that it replaced. had is false if there was no such row.
func (t *Table[K, V]) put(key K, row V) (before V, had bool) {
	t.own()
	before, had = t.tree.Set(key, row)
	t.note(key, before, had)
	return before, had
}

// del removes a row and returns it. had is false if there was no such row.
func (t *Table[K, V]) del(key K) (before V, had bool) {
	if t.shared && !t.Has(key) {
		return before, false
	}
	t.own()
	if before, had = t.tree.Delete(key); had {
		t.note(key, before, true)
	}
	return before, had
}

// note records how to undo a write, if the undo log is open.
func (t *Table[K, V]) note(key K, before V, had bool) {
	if t.undo == nil || !t.undo.open {
		return
	}
	tree := t.tree
	t.undo.steps = append(t.undo.steps, func() {
		if had {
			tree.Set(key, before)
		} else {
			tree.Delete(key)
		}
	})
}

// undoLog takes back what the first commands of a group did if a later command is refused. A fork for each group could
// do the same, but it would copy every part of a tree that the group touches: 40 kB for each group instead of 3 kB
// (measured).
type undoLog struct {
	open  bool
	steps []func() // undone last to first
}

func (u *undoLog) begin() { u.open = true }

// keep makes permanent what was done since begin.
func (u *undoLog) keep() {
	u.open = false
	clear(u.steps)
	u.steps = u.steps[:0]
}

// rollback undoes what was done since begin.
func (u *undoLog) rollback() {
	u.open = false
	for _, step := range slices.Backward(u.steps) {
		step()
	}
	u.keep()
}
