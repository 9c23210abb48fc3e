//go:build !planted

package plant

// Is reports whether a bug is planted. In this build, without the tag planted, it always returns false.
func Is(Bug) bool { return false }

// Disorder returns n. In a build with the tag planted it returns a number that differs from run to run.
func Disorder(n uint64) uint64 { return n }
