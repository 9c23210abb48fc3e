//go:build !planted

package plant

// Is reports whether a bug is planted. In this build none is.
func Is(Bug) bool { return false }

// Disorder gives a number that differs from run to run, then of n. In this build it is n.
func Disorder(n uint64) uint64 { return n }
