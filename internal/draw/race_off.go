//go:build !race

package draw

// cases is how many cases a property test draws.
const cases = "60"
