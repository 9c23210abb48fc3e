// Package invariant judges the history of a cluster by the rules S1 to S15 of docs/proof.md, as far as the rows of the
// replicated state show them. It is for tests that have every entry of a log and the states around it: whole clusters
// in fake time, and the simulation of the core. What programs really did and what clients were told is judged there.
//
// A judge reads states and entries alone: no clock, no chance, no order of a map. So the same history is judged in the
// same way every time.
package invariant
