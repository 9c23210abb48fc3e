// Package linear judges what clients of a cluster observed. It sends reads and writes through all servers at the same
// time while faults happen. It records when each request began and ended, and its result. Then it checks whether some
// order of all requests explains every result.
//
// It uses two kinds of objects: labels of nodes as registers, and jobs as registers with a version and compare-and-set
// (if_index). The library porcupine checks that consistent reads and all writes of one object are linearizable. Default
// and stale reads only have to show the state at the index that they name. A default read must not be older than the
// leader's lease, and a stale read must not be older than the age in its answer.
//
// A violation begins with the invariant that it breaks:
//
//   - S4: a write that was acknowledged is in the state exactly once;
//   - S8: versions and indexes only grow;
//   - LIN: some order explains the history;
//   - AGE: a default read is no older than the lease, and a stale read is no older than its answer states;
//   - WAIT: a blocking read does not return too early.
package linear
