// Package memnet is a network in memory, for tests of whole clusters in fake time. Hosts are IP addresses. Between them
// there are streams for the TLS port and packets for gossip. Each direction of a link can fail on its own. Everything
// waits on channels and timers, which a testing/synctest bubble recognizes; with real sockets the bubble's clock would
// stop.
package memnet
