//go:build race

package draw

// Few reports whether property tests draw few cases, as under the race detector. It looks at how goroutines share
// memory, which few cases show as well as many, and makes each case ten times slower. A property test that also wants
// its cases to meet something does not insist on that then.
const Few = true

const cases = "8"
