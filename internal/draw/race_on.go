//go:build race

package draw

// cases is how many cases a property test draws. The race detector looks at how goroutines share memory, which few
// cases show as well as many, and makes each case ten times slower.
const cases = "8"
