// Package cluster keeps the servers of a cluster in agreement: consensus, membership, and which members are alive.
//
// It hides hashicorp/raft, raft-boltdb and memberlist. It also makes up for what they do wrong when a disk fails, a
// process is paused or a network splits. DESIGN.md lists these traps and the protection against each. Server replicates
// entries into an fsm.Machine and runs a function while it leads. Pool is the gossip of servers and agents. Hearts and
// Beater are the two ends of heartbeats. Evidence weighs what the servers heard.
//
// This package does not decide what the cluster should do; package reconcile does. Every wait has its own deadline.
// Every goroutine has an owner that waits for its end. The package runs unmodified in a testing/synctest bubble over
// net.Pipe.
package cluster
