// Package driver runs the real processes of a node: one program per instance, each under its own shim.
//
// A shim is this same binary, started again in a session of its own. It owns the program (its descendants, its logs,
// its exit status, its fencing lease), so the work outlives the agent, and a new agent adopts it. The package hides
// processes, cgroups v1 and v2, users, log files and state directories. The agent works with two types: Driver starts
// and adopts instances, and a Task stops, signals, observes and removes one instance.
//
// The binary must dispatch two hidden subcommands: `shim` to ShimMain and `shim-init` to InitMain. DESIGN.md explains
// the choices. Linux only.
package driver
