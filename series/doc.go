// Package series keeps figures of the last day in the memory of a server: how many nodes, instances and drains there
// were, what was allocated and used, and how the server itself did. Each server has a Recorder, which samples its own
// state. DESIGN.md has the choices.
package series
