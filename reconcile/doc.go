// Package reconcile decides what the leader should do next: placement, drains, rollouts, and the handling of offline
// nodes. It does not depend on raft or the network.
//
// Decide is a pure function: the same state, evidence and time give the same plan. It tries every command on a draft,
// with the same Apply that the log uses. So it can't plan what Apply would refuse on that state, and each pass sees
// what earlier passes did. A plan also says when a new decision could differ although there is no new entry. So Loop
// needs only one timer, and nothing has to be rebuilt after a failover.
package reconcile
