// Package cli is the command line of outspan.
//
// nouns.go holds the table of commands; each noun has a file with its verbs. A command talks to the cluster through
// the HTTP API only (call.go), and ends with an exit code from the table in exit.go, which scripts rely on. Package
// term prints what it found; package local has the commands that need no cluster.
package cli
