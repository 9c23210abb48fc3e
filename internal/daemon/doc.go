// Package daemon runs servers and agents: it opens what their files describe, wires the parts of one process together,
// takes over a changed configuration, and ends them in order. It decides nothing; the parts are in cluster, reconcile,
// transport and agent.
package daemon
