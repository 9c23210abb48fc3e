// Package e2e holds the tests of whole clusters. They build the program and run servers and agents as real processes,
// each at a separate loopback address or, as root, in a separate network namespace. They use them only through the
// command line and the HTTP API, as a user would. What runs is counted from the kernel: its process table, cgroups and
// files.
//
// Set OUTSPAN_E2E_REQUIRED=1 to make a missing prerequisite (root, ip, iptables) a failure instead of a skip,
// OUTSPAN_E2E_KEEP=1 to keep the directories of clusters whose test failed, and OUTSPAN_E2E_PROGRAM=FILE to test a
// program that is built already.
//
// OUTSPAN_AWAY=10m makes TestServersAway keep all servers down for this long.
//
// OUTSPAN_CHAOS=15m makes TestChaos break a cluster for this long (make chaos). OUTSPAN_SEED=N repeats an order of
// faults, and OUTSPAN_CHAOS_FAULTS=NAME,... draws only these. OUTSPAN_CHAOS_OLD=FILE is the program of an earlier
// release for rolling upgrades (default: the same source with another version). OUTSPAN_CHAOS_LOG=1 logs each step at
// once.
package e2e
