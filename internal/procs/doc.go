// Package procs runs servers and agents of this program as real processes, and reads the process table. The demo and
// the tests of the CLI use it.
package procs
