// Package invariant checks the history of a cluster against the invariants of docs/proof.md, as far as the rows of the
// replicated state show violations. It is for tests that have every log entry and the states before and after it: the
// simulation of the core, tests of whole clusters in fake time, and the chaos tests of real processes. These tests
// check for themselves what programs really did and what clients were told.
//
// A judge depends only on states and entries, and not on a clock, randomness or map order. So the same history always
// gives the same findings.
package invariant
