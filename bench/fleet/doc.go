// Package fleet runs servers of the real program as separate processes on loopback, with TLS and their raft logs on
// disk. It observes them as an operator does: through their API, and through what the kernel reports about their
// processes.
package fleet
