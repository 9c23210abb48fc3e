//go:build !race

package draw

// Race reports whether the race detector is on.
const Race = false

const cases = "60"
