// Package cli is the command line of outspan.
//
// nouns.go has the table of commands; each noun has a file with its verbs. A command uses the cluster through the HTTP
// API only (call.go). It ends with an exit code from the table in exit.go, which scripts rely on. Package term prints
// the results; package local has the commands that need no cluster.
package cli
