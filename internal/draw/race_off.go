//go:build !race

package draw

// Few reports whether property tests draw few cases, as under the race detector. A property test that also wants its
// cases to meet something does not insist on that then.
const Few = false

const cases = "60"
