// Package crowd runs thousands of simulated agents in one process, to measure servers. For the servers they are real.
// Each has its own certificate and TLS connections, registers, polls its assignments and the services, reports, sends
// signed heartbeats and answers gossip's probes. The differences cost the servers nothing: the agents run no programs,
// so starts and stops take no time. They share one socket for gossip, and don't forward gossip.
package crowd
