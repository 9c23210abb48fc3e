package fsm

import (
	"cmp"
	"iter"

	"github.com/tidwall/btree"
)

// Table is a persistent ordered table: iteration is in key order, and copying the table value is a snapshot. Only this file
// knows the tree library.
//
// Rows are replaced, never edited: a row that was put (the slices and maps in it included) is read-only for ever. A published table
// has no put; a fork is written by its one owner. Reading a published table is safe for many goroutines.
type Table[K cmp.Ordered, V any] struct{ tree *btree.Map[K, V] }

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

// Len is the number of rows.
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

// Min returns the row with the smallest key.
func (t Table[K, V]) Min() (key K, row V, ok bool) {
	if t.tree == nil {
		return key, row, false
	}
	return t.tree.Min()
}

// Max returns the row with the largest key.
func (t Table[K, V]) Max() (key K, row V, ok bool) {
	if t.tree == nil {
		return key, row, false
	}
	return t.tree.Max()
}

// Same reports whether t and u are the very same version: a pointer comparison.
func (t Table[K, V]) Same(u Table[K, V]) bool { return t.tree == u.tree }

// fork returns a table that can be written while t stays as it is. The library's own copy writes to its source, which
// would be a race on a published table: a local header is copied instead, and t is never written again.
func (t Table[K, V]) fork() Table[K, V] {
	if t.tree == nil {
		return Table[K, V]{tree: new(btree.Map[K, V])}
	}
	header := *t.tree
	return Table[K, V]{tree: header.Copy()}
}

func (t Table[K, V]) put(key K, row V) { t.tree.Set(key, row) }

func (t Table[K, V]) del(key K) { t.tree.Delete(key) }
