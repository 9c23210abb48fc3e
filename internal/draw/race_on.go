//go:build race

package draw

// Race reports whether the race detector is on. It makes tests up to ten times slower, and looks at how goroutines
// share memory. A few cases show that as well as many, and a short wait as well as a long one. A property test that
// also wants its cases to meet something does not insist on that when Race is true.
const Race = true

const cases = "8"
