// Package linear judges what clients of a cluster observed. It sends reads and writes through all servers at once while
// faults happen, and records when each began and ended and its result. Then it checks whether one order of all of them
// explains every result.
//
// It uses two kinds of objects: labels of nodes as registers, and jobs as registers with compare-and-set (if_index) and
// a version. Consistent reads and all writes of one object must be linearizable (checked by porcupine). Default and
// stale reads promise less, and are checked only for that: they show the state at the index that they name, and this
// state is no older than they say.
//
// A violation begins with the invariant that it breaks: S4 (acknowledged once is there once), S8 (versions and indexes
// only grow), LIN (no order explains the history), AGE (a read is older than it says), WAIT (a blocking read came back
// too early).
package linear
