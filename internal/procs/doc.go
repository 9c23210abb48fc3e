// Package procs starts programs as real processes, watches and stops them, and reads the kernel's process table. The
// demo, the benchmarks and the tests of whole clusters use this package. The demo runs a whole cluster as a Sandbox.
package procs
