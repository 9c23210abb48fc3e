// Package memnet is a network in memory for tests of whole clusters in fake time: streams for the TLS port, packets for
// gossip, between hosts that are IP addresses. Links are cut in each direction for itself. All that it waits for is a
// channel or a timer, so that a testing/synctest bubble can see through it; real sockets would stop the bubble's clock.
package memnet
