// Package fsm is the replicated truth: nodes, jobs, instances, drains, budgets, and the commands that change them.
//
// It has no clock, network, disk, logger or randomness. State is a value: Apply returns a new one and never changes the
// old, so every server that applies the same entries has the same state, a snapshot is an assignment, and a what-if is
// a Draft.
//
// State embeds six drawers: fleet, jobs, instances, moves, rules and history. A drawer owns tables, writes their rows
// and keeps their indexes (drawer_*.go); DESIGN.md lists them. Commands check, and then write through the drawers.
//
// Rules of determinism: nothing depends on the order of a map, on time other than State.Now, or on anything outside the
// entry and the state.
//
// To add a command: a struct with integer CBOR keys and an apply method in its noun's file, which checks everything
// before it edits anything; one line in the table of kinds with the format that introduces it; a golden sample (go test
// ./fsm -rewrite).
package fsm
