package fsm

import "pgregory.net/rapid"

// RandomHistory applies random entries to a Machine, sometimes restores an older snapshot, and calls each after every
// step.
func RandomHistory(t *rapid.T, steps int, begin func(*Machine), each func(*Machine)) {
	h := newRandomLog(t)
	h.restores = true
	begin(h.second)
	for _, seed := range seeds(steps).Draw(t, "steps") {
		h.step(seed, map[string]int{})
		each(h.second)
	}
}
