// Package crowd runs thousands of simulated agents in one process, to measure servers. The servers treat them as real
// agents. Each agent has its own certificate and TLS connections. It registers, polls assignments, services and lists
// of peers, sends reports and signed heartbeats, and answers gossip's probes.
//
// The simulated agents differ from real ones in two ways that don't change the servers' load. They run no programs, so
// starts and stops take no time. They share one socket for gossip, and don't forward gossip.
package crowd
