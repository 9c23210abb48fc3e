// Package memnet is a network in memory, for tests of whole clusters in fake time. Hosts are IP addresses. Streams
// between hosts carry the traffic of the TLS port, and packets carry gossip. Each direction of a link can fail on its
// own. Everything waits on channels and timers, which a testing/synctest bubble recognizes. With real sockets the
// bubble's clock would stop.
package memnet
