// Package invariant judges the history of a cluster by the rules S1 to S15 of docs/proof.md, as far as the rows of the
// replicated state show them. It is for tests that have every entry of a log and the states around it: whole clusters
// in fake time, and the simulation of the core. Those tests judge what programs really did and what clients were told.
//
// A judge reads only states and entries: no clock, no randomness, no map order. So it always judges the same history in
// the same way.
package invariant
