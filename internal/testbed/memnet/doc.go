// Package memnet is a network in memory, for tests of whole clusters in fake time: streams for the TLS port and packets
// for gossip, between hosts that are IP addresses. Each direction of a link is cut separately. It waits only on
// channels and timers, which a testing/synctest bubble can see; real sockets would stop the bubble's clock.
package memnet
