// Package local has the commands that work on this machine without a cluster: up, certificates and keys, files of
// servers and agents, data directories of stopped servers, snapshots, dev and demo, and the generated references.
//
// No other package of the command line may import fsm.
package local
