// Package e2e has the tests of whole clusters of real processes. The tests build the program and run servers and
// agents. Each process has its own loopback address or, if the tests run as root, its own network namespace. The tests
// use these processes only through the command line and the HTTP API, as a user would. To find out what really runs,
// they read the kernel's process table, cgroups and files.
//
// OUTSPAN_E2E_REQUIRED=1 makes a missing prerequisite (root, ip, iptables) a failure instead of a skip.
// OUTSPAN_E2E_KEEP=1 keeps the directories of clusters whose test failed. OUTSPAN_E2E_PROGRAM=FILE tests a program that
// is already built.
//
// OUTSPAN_AWAY=10m makes TestServersAway keep all servers down for 10 minutes.
//
// OUTSPAN_CONTAINER_DRAINS=100 makes TestContainerDrains drain a node 100 times in a row, in place of 12 times.
//
// OUTSPAN_CHAOS=15m makes TestChaos break a cluster for 15 minutes (make chaos). OUTSPAN_SEED=N repeats the order of
// faults of the run that printed N. OUTSPAN_CHAOS_FAULTS=NAME,... uses only these faults. OUTSPAN_CHAOS_OLD=FILE is the
// program of an earlier release for rolling upgrades. By default, the tests build this program from the same source
// with another version. OUTSPAN_CHAOS_LOG=1 logs each step immediately. The programs of this test are built with the
// tag shortlived: the certificates of their servers and agents last six minutes (pki.MemberTTL), and are renewed
// during the test. TestExpiredAgent, TestClusterExpired and TestClocks use a build whose wall clock they move
// (clock_test.go).
package e2e
