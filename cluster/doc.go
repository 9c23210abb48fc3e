// Package cluster keeps the servers of a cluster in agreement: consensus, membership, and who is alive.
//
// It hides hashicorp/raft, raft-boltdb and memberlist together with what they do wrong when a disk fails, a
// process is paused or a network splits (DESIGN.md lists each trap and what stands against it). Server replicates
// entries into an fsm.Machine and runs a function while this server leads. Pool is the gossip of servers and
// agents. Hearts and Beater are the two ends of heartbeats, Evidence weighs what the servers heard.
//
// Nothing here decides what the cluster should do; that is package reconcile. Every wait has its own deadline,
// every goroutine ends with the Run that started it, and all of it runs unmodified in a testing/synctest bubble
// over net.Pipe.
package cluster
