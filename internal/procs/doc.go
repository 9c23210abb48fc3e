// Package procs runs servers and agents of this very program as real processes, and reads the process table. The demo
// and the tests of the CLI stand on it.
package procs
