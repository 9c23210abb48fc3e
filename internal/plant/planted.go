//go:build planted

package plant

import "os"

// chosen is the bug that is planted in this process, or "" if no bug is planted.
var chosen = choose()

func choose() Bug {
	b := Bug(os.Getenv("OUTSPAN_PLANT"))
	if b != "" && !b.Valid() {
		panic("OUTSPAN_PLANT=" + string(b) + " is no bug that can be planted")
	}
	return b
}

// Is reports whether b is the bug that OUTSPAN_PLANT named when the process started. It is safe for concurrent use.
func Is(b Bug) bool { return b == chosen }

// Disorder returns a number that differs from run to run. Its top three bits come from the iteration order of a map,
// the others from n.
func Disorder(n uint64) uint64 {
	for k := range map[uint64]bool{0: true, 1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 7: true} {
		return k<<61 | n>>3
	}
	return n
}
