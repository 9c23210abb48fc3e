//go:build !planted

package plant

// Is reports whether a bug is planted. In a build without the tag planted, none is.
func Is(Bug) bool { return false }

// Disorder returns n. In a build with the tag planted it returns a number that differs from run to run.
func Disorder(n uint64) uint64 { return n }
