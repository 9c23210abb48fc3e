// Package memnet is a network in memory, for tests of whole clusters in fake time. Hosts are IP addresses. Streams
// between hosts carry the traffic of the TLS port, and packets carry gossip. Each direction of a link can fail on its
// own. The network waits only on channels and timers, so the clock of a testing/synctest bubble advances meanwhile.
// During a wait on a real socket the clock would not advance.
package memnet
