package series

import (
	"maps"
	"slices"
)

// board keeps a ring for each of a bounded number of objects, such as the largest jobs. Not safe for concurrent use.
type board[K ~string] struct {
	layout
	most  int // objects
	rings map[K]*ring
}

func newBoard[K ~string](l layout, most int) board[K] {
	return board[K]{layout: l, most: most, rings: map[K]*ring{}}
}

// keep makes place for the objects with the largest sizes, and forgets those that are not there any more. An object
// that is kept gives way only to one that is larger.
func (b *board[K]) keep(sizes map[K]int) {
	maps.DeleteFunc(b.rings, func(k K, _ *ring) bool { _, there := sizes[k]; return !there })
	if len(sizes) <= b.most {
		for k := range sizes {
			b.add(k)
		}
		return
	}
	order := slices.SortedFunc(maps.Keys(sizes), func(x, y K) int {
		switch {
		case sizes[x] != sizes[y]:
			return sizes[y] - sizes[x]
		case (b.rings[x] != nil) != (b.rings[y] != nil):
			if b.rings[x] != nil {
				return -1
			}
			return 1
		case x < y:
			return -1
		}
		return 1
	})
	for _, k := range order[b.most:] {
		delete(b.rings, k)
	}
	for _, k := range order[:b.most] {
		b.add(k)
	}
}

func (b *board[K]) add(k K) {
	if b.rings[k] == nil {
		r := newRing(b.layout)
		b.rings[k] = &r
	}
}

// after returns at most n of the objects after one, in their order.
func (b *board[K]) after(k K, n int) []K {
	all := slices.Sorted(maps.Keys(b.rings))
	at, found := slices.BinarySearch(all, k)
	if found {
		at++
	}
	return all[at:min(len(all), at+n)]
}

func (b *board[K]) bytes() (n int) {
	for _, r := range b.rings {
		n += r.bytes()
	}
	return n
}
