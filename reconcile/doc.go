// Package reconcile decides what the leader should do next: placement, drains, rollouts, and the handling of offline
// nodes. It does not depend on raft or the network.
//
// Decide is a pure function: the same state, evidence and time give the same plan. It tries every command on a draft,
// with the same Apply that the log uses. So it never plans what Apply would refuse on this state, and each pass sees
// what earlier passes did. A plan also says when the decision could change without a new entry. So Loop needs only one
// timer, and nothing has to be rebuilt after a failover.
package reconcile
