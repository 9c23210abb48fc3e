package main

import "context"

// Case is one thing that is measured.
type Case struct {
	Name  string // chosen by -case
	About string
	// Fast cases have a cluster of their own, which takes nodes for dead after 2 s.
	Fast bool
	Run  func(context.Context, *stage) error
}

// cases lists them in the order in which they run: later ones find the cluster filled by earlier ones.
func cases() []Case {
	return []Case{
		{Name: "heartbeats", About: "all nodes beat, nothing else happens", Run: heartbeats},
		{Name: "placements", About: "groups placed, committed, visible on a follower, reported running", Run: placements},
		{Name: "writes", About: "single replicated writes", Run: singleWrites},
		{Name: "growth", About: "the cluster is filled: rate and memory as it grows", Run: growth},
	}
}
