package main

import (
	"os"
	"runtime/debug"
)

// gcPercent is how much a server's heap may grow between two collections, in percent of what is in use: 5,000 nodes and 100,000 instances under a stream of
// reports take 368 MB with Go's own 100, 336 MB with 75 for 8 % more processor time, and 305 MB with 50 for 26 % more.
const gcPercent = 75

// setCollector makes the garbage collector of a server keep less than Go's default does. Who set GOGC in the environment knows better. GOMEMLIMIT holds beside it.
func setCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
