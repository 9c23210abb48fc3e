// Package cli is the command line of outspan.
//
// nouns.go has the table of commands, and each noun has a file with its verbs. A command uses the cluster only through
// the HTTP API (call.go). Scripts rely on the exit codes, which are in the table in exit.go. Package term prints the
// results; package local has the commands that need no cluster.
package cli
