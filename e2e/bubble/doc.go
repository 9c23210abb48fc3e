// Package bubble holds tests of whole clusters in fake time. Everything between the command line's client and an
// agent's processes is real (raft over bbolt files, memberlist, TLS and HTTP/2, the API, the leader's loop, agents with
// their journals), in one process inside a testing/synctest bubble. Only the network and the programs that agents run
// are simulated in memory. So an hour of idling costs a second, a machine loses power at a given millisecond, and every
// entry of every server's log is checked:
//
//   - replaying it from the log, and from a snapshot and what follows, gives the state that the server published (S5);
//     all servers agree at equal indexes;
//   - internal/testbed/invariant judges each step by S1 to S15 from the rows themselves, beside fsm.Check and
//     CheckStep;
//   - what clients were told about their requests is what the log did, once (S4);
//   - what programs really do is judged by themselves: the memory of a machine, one holder of a slot and growing
//     epochs, the last copy in sync (S1, S2, S6).
//
// Then faults and work end, and the cluster must come to rest: a leader, drains that end, everything that is wanted
// once, no more entries, and a dead node found out in time (L1 to L4, invariant_live_test.go).
//
// Machines lose power with what was not forced to their disks, disks hang, fail and fill up (internal/testbed/memdisk).
// Links are late, in disorder, repeat and lose (internal/testbed/memnet), and wall clocks jump. A paused process is one
// thing that a bubble can't have: only its outside is imitated here.
//
// Random tests run the seeds of testdata/seeds, which found something once, and a few fixed ones; with OUTSPAN_SIM=1
// (make sim) also OUTSPAN_SIM_SEEDS fresh ones after those of the file. In make test (-short) the longest run for half
// as long. They print their seeds and what was done; OUTSPAN_SEED=N runs one again. That gives the same plan of work
// and faults, but not the same history bit for bit. Inside a bubble time is exact, yet goroutines that are ready at the
// same moment run in any order, and keys and ids are drawn each time. So what a seed found gets its own scenario or
// test, and the seed stays as one that came near it. BUBBLE_LOG=debug shows the parts' logs.
package bubble
