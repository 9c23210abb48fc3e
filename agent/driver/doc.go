// Package driver runs the programs of a node's instances, each under its own shim.
//
// A shim is a process of the same binary, in a session of its own. It owns the program with its descendants, logs, exit
// status and lease. So programs continue when the agent ends, and a new agent adopts them. The agent uses two types:
// Driver starts and adopts instances, and a Task stops, signals, observes and removes one instance. These types hide
// cgroups, users, log files and state directories.
//
// The binary must have two hidden subcommands: `shim` calls ShimMain and `shim-init` calls InitMain. DESIGN.md explains
// the choices. Linux only.
package driver
