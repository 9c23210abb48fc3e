// Package crowd runs thousands of simulated agents in one process, to measure servers. The servers treat them as real
// agents. Each has its own certificate and TLS connections, registers, polls its assignments and the services, reports,
// sends signed heartbeats and answers gossip's probes. The simulated agents differ in two ways that don't change the
// servers' load. They run no programs, so starts and stops take no time. They share one socket for gossip, and don't
// forward gossip.
package crowd
