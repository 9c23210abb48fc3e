// Package crowd is thousands of agents in one process, for measuring servers. To the servers they are real: each has
// its own certificate and TLS connections, registers, polls its assignments and the services, reports, sends signed
// heartbeats and answers gossip's probes. What they leave out costs servers nothing: they run no programs (starts and
// stops take no time), share one socket for gossip, and don't forward gossip.
package crowd
