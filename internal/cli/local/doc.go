// Package local has the commands that work on this machine without a cluster: certificates and keys, files of servers
// and agents, data directories of stopped servers, snapshots, dev and demo, and the generated references.
//
// It is the only part of the command line that may read a replicated state.
package local
