//go:build profile

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
)

// startProfile starts a CPU profile in the file $OUTSPAN_PROFILE/$OUTSPAN_PROFILE_NAME.cpu. It does nothing if either
// variable is empty. end finishes the profile, and writes profiles of the heap, of all allocations and of goroutines
// beside it. Only builds with the tag profile contain this file.
func startProfile() (end func()) {
	dir, name := os.Getenv("OUTSPAN_PROFILE"), os.Getenv("OUTSPAN_PROFILE_NAME")
	if dir == "" || name == "" {
		return func() {}
	}
	complain := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "profile:", err)
		}
	}
	cpu, err := os.Create(filepath.Join(dir, name+".cpu"))
	if err == nil {
		err = pprof.StartCPUProfile(cpu)
	}
	complain(err)
	return func() {
		pprof.StopCPUProfile()
		complain(cpu.Close())
		runtime.GC()
		for _, kind := range []string{"heap", "allocs", "goroutine"} {
			f, err := os.Create(filepath.Join(dir, name+"."+kind))
			if err == nil {
				err = pprof.Lookup(kind).WriteTo(f, 0)
			}
			complain(err)
			if err == nil {
				complain(f.Close())
			}
		}
	}
}
