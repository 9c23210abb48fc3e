// Package linear judges what clients of a cluster observed. It sends reads and writes through all servers at the same
// time while faults happen. It records when each request began and ended, and its result. Then it checks whether some
// order of all requests explains every result.
//
// It uses two kinds of objects: labels of nodes as registers, and jobs as registers with a version and compare-and-set
// (if_index). Consistent reads and all writes of one object must be linearizable, which porcupine checks. Default and
// stale reads promise less: they show the state at the index that they name, and a state that is no older than the
// leader's lease or than the age that they state. Only that is checked.
//
// A violation begins with the invariant that it breaks:
//
//   - S4: a write that was acknowledged is in the state exactly once;
//   - S8: versions and indexes only grow;
//   - LIN: some order explains the history;
//   - AGE: a default read is no older than the lease, and a stale read no older than it says;
//   - WAIT: a blocking read does not return too early.
package linear
