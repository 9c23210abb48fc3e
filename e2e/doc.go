// Package e2e holds the tests of whole clusters: they build the program, run servers and agents as real processes, each
// at a loopback address of its own or, as root, in a network namespace of its own, and use them through the command
// line and the HTTP API alone, as a user would. What is true of instances is counted from the kernel: its process
// table, cgroups and files.
//
// Set OUTSPAN_E2E_REQUIRED=1 to make a missing prerequisite (root, ip, iptables) a failure instead of a skip,
// OUTSPAN_E2E_KEEP=1 to keep the directories of clusters whose test failed, and OUTSPAN_E2E_PROGRAM=FILE to test a
// program that is built already.
//
// OUTSPAN_AWAY=10m has TestServersAway keep all servers down for so long.
//
// OUTSPAN_CHAOS=15m has TestChaos break a cluster for so long (make chaos). OUTSPAN_SEED=N repeats an order of faults,
// OUTSPAN_CHAOS_FAULTS=NAME,... draws only these, OUTSPAN_CHAOS_OLD=FILE is the program of an earlier release for
// rolling upgrades (default: the same source that calls itself differently), and OUTSPAN_CHAOS_LOG=1 tells what is done
// when it is done.
package e2e
