// Package procs launches programs as real processes, watches and ends them, and reads the kernel's process table.
// A Sandbox is a whole cluster of this program. The demo, the benchmarks and the tests of whole clusters use it.
package procs
