// Package fsm has the replicated state (nodes, jobs, instances, drains, budgets and more) and the commands that change
// it.
//
// The package has no clock, network, disk, logger or randomness, so every server that applies the same entries has the
// same state. State is a value: Apply returns a new State and never changes the old one. So an assignment makes a
// snapshot, and commands can be tried on a Draft.
//
// State embeds six drawers: fleet, jobs, instances, moves, rules and history. A drawer owns tables, writes their rows
// and keeps their indexes (drawer_*.go). DESIGN.md lists the drawers. A command checks everything first, and then
// writes through the drawers.
//
// Rules of determinism: nothing depends on the order of a map, on time other than State.Now, or on anything outside the
// entry and the state.
//
// To add a command:
//   - write a struct with integer CBOR keys, a Kind method, and an apply method that checks everything before it edits
//     anything;
//   - add a line to kinds, with the format that introduces the command;
//   - add a golden sample (go test ./fsm -rewrite).
package fsm
