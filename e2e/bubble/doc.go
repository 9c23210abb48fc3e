// Package bubble has tests of whole clusters in fake time. Everything between the command line's client and an agent's
// processes is real: raft over bbolt files, memberlist, TLS and HTTP/2, the API, the leader's loop, and agents with
// their journals. All of it runs in one process inside a testing/synctest bubble. Only the network, the programs that
// agents run and their images are simulated in memory. An hour of idling costs a second, and a machine can lose power
// at a given millisecond. Every entry of every server's log is checked:
//
//   - A replay of the log leads to the state that the server published (S5). A snapshot and the entries that follow it
//     lead to that state too. All servers have the same state at the same index.
//   - internal/testbed/invariant checks S1 to S15 at each step, using only the rows. fsm.Check and CheckStep check
//     each step too.
//   - The log agrees with the answers that clients got: an acknowledged request was carried out once, and a
//     refused request was never carried out (S4).
//   - A container starts only once its image is on its machine.
//   - The programs fit into the memory of their machine, a slot has one holder, epochs grow, and the last copy in sync
//     is not stopped (S1, S2, S6).
//
// At the end, faults and work stop, and the cluster must come to rest: there is a leader, drains end, everything that
// is wanted runs once, no more entries are written, and a dead node is found in time (L1 to L4,
// invariant_live_test.go).
//
// A machine that loses power also loses what it has not yet forced to its disk. Disks hang, fail and fill up
// (internal/testbed/memdisk). Links delay, reorder, repeat and lose packets (internal/testbed/memnet), and wall clocks
// jump. A bubble can't pause a single process, so these tests only imitate how a paused process looks from outside.
//
// Random tests run a few fixed seeds, and the seeds in testdata/seeds, each of which once found a bug. With
// OUTSPAN_SIM=1 (make sim) they run OUTSPAN_SIM_SEEDS fresh seeds in place of the fixed ones. In make test (-short) the
// longest tests run for half as long. Random tests print their seeds and what was done; OUTSPAN_SEED=N runs one seed
// again. BUBBLE_LOG=debug shows the logs of servers and agents.
//
// A seed always gives the same plan of work and faults, but not exactly the same history. Goroutines that are ready at
// the same moment run in any order, and keys and ids are random each time. So a bug that a seed found gets a scenario
// or test of its own. The seed is kept too, because it leads close to that bug.
package bubble
