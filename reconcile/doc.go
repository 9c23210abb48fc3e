// Package reconcile decides what the leader should do next. It hides how placement, drains, rollouts and the offline
// rule work together; it knows nothing of raft or the network.
//
// Decide is a function: the same state, evidence and time give the same plan. It tries every command on a draft with
// the very Apply that the log uses, so it can't plan what Apply would refuse on that state, and each pass sees what the
// passes before it did. A plan carries the next time at which the answer could change, so Loop needs one timer and
// nothing has to be rebuilt after a failover.
package reconcile
