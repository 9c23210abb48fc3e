package main

import (
	"context"
	"slices"
)

// Case is one measurement.
type Case struct {
	Name   string // chosen by -case
	About  string
	Stage  setting
	Limits bool // compare its figures with what the machine does without outspan
	Run    func(context.Context, *stage) error
}

// setting is the cluster that a case runs on.
type setting struct {
	grown bool // its cluster is filled by the case growth, which measures memory and so must run before all others
	fast  bool // nodes are offline after 2 s, and gossip uses its profile fast
	nodes int  // maximum number of nodes; 0 means all
}

// among returns s with its maximum lowered to the given number of nodes.
func (s setting) among(nodes int) setting {
	if s.nodes == 0 || s.nodes > nodes {
		s.nodes = nodes
	}
	return s
}

// settings lists the settings of all cases, in the order in which their clusters are set up. Only one cluster runs at a
// time.
func settings(nodes int) []setting {
	var all []setting
	for _, c := range cases() {
		if s := c.Stage.among(nodes); !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// cases lists all cases. Cases with the same setting run one after another on one cluster, in this order. So a case may
// find the cluster filled by an earlier case.
func cases() []Case {
	grown, few, many := setting{grown: true}, setting{fast: true, nodes: 100}, setting{fast: true, nodes: 500}
	return []Case{
		{Name: "heartbeats", About: "all nodes beat, nothing else happens", Run: heartbeats},
		{Name: "placements", About: "groups placed, committed, visible on a follower, reported running",
			Limits: true, Run: placements},
		{Name: "writes", About: "single replicated writes", Limits: true, Run: singleWrites},
		{Name: "growth", About: "the cluster is filled: rate and memory as it grows", Stage: grown, Run: growth},
		{Name: "drain-ack", About: "drains are acknowledged while others write", Stage: grown, Run: drainAcks},
		{Name: "drains", About: "one full node is emptied, then many at once", Stage: grown, Run: drains},
		{Name: "cli", About: "the command line starts, and lists all nodes", Stage: grown, Run: commandLine},
		{Name: "failover", About: "kill -9 of the leader", Stage: grown, Run: failover},
		{Name: "snapshots", About: "the state is saved and restored", Stage: grown, Run: snapshots},
		{Name: "kill-one", About: "one machine of 100 dies", Stage: few, Run: killOne},
		{Name: "kill-ten", About: "ten machines of 500 die at once", Stage: many, Run: killTen},
	}
}
