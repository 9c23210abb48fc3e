// Package bubble holds tests of whole clusters in fake time: everything between the command line's client and an agent's processes is the
// real thing (raft over bbolt files, memberlist, TLS and HTTP/2, the API, the leader's loop, agents with their journals), in one process
// inside a testing/synctest bubble. Only the network and the programs that agents run are made of memory. So an hour of idling costs a
// second, a machine loses power at a given millisecond, and every entry of every server's log is checked:
//
//   - replaying it from the log gives the state that the server published (S5), which holds every invariant of fsm.Check and CheckStep;
//   - all servers agree at equal indexes;
//   - no voluntary stop lowers a group's ready below its min_ready, none exceeds its rate, none begins an involuntary move while a hold
//     is set (S3, S12).
//
// Machines lose power with what was not forced to their disks, disks hang, fail and fill up (cluster/memdisk), links are late, in disorder, repeat and
// lose (cluster/memnet), wall clocks jump. A paused process is one thing that a bubble can't have: only its outside is imitated here.
//
// Random tests print their seed; OUTSPAN_SEED=N runs one again. BUBBLE_LOG=debug shows what the parts say.
package bubble
