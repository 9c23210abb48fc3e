// Package daemon runs servers and agents. It opens what their configuration files describe, connects the parts of one
// process, applies a reloaded configuration, and stops the parts in reverse order. The parts themselves are in packages
// cluster, reconcile, transport and agent.
package daemon
