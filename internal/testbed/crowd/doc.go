// Package crowd is thousands of agents in one process, for measuring servers. To the servers they are real: each has a
// certificate and TLS connections of its own, registers, polls its assignments and the services, reports, sends signed
// heartbeats and answers the probes of gossip. What they leave out costs servers nothing: they run no programs (a start
// takes no time, and so does a stop), share one socket for gossip, and don't pass on what gossip tells them.
package crowd
