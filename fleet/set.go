package fleet

import "math/bits"

// set is a set of handles, a bit each.
type set []uint64

func (s set) has(h uint32) bool { return int(h/64) < len(s) && s[h/64]&(1<<(h%64)) != 0 }

// set adds or removes a handle.
func (s *set) set(h uint32, on bool) {
	switch word := int(h / 64); {
	case on:
		s.grow(word + 1)
		(*s)[word] |= 1 << (h % 64)
	case word < len(*s):
		(*s)[word] &^= 1 << (h % 64)
	}
}

// grow makes room for n words, and for a quarter more if there was too little.
func (s *set) grow(n int) {
	if n <= len(*s) {
		return
	}
	if n > cap(*s) {
		bigger := make(set, len(*s), n+n/4)
		copy(bigger, *s)
		*s = bigger
	}
	*s = (*s)[:n]
}

// pick appends up to most handles of the set to rows, in ascending order, from the handle from on.
func (s set) pick(rows []uint32, from uint32, most int) []uint32 {
	for word := int(from / 64); word < len(s); word++ {
		for left := s[word]; left != 0; left &= left - 1 {
			if len(rows) == most {
				return rows
			}
			if h := uint32(64*word + bits.TrailingZeros64(left)); h >= from {
				rows = append(rows, h)
			}
		}
	}
	return rows
}
