// Package cli is the command line of outspan.
//
// nouns.go holds the table of commands; each noun has a file with its verbs. A command talks to the cluster through
// the HTTP API only (call.go), prints in the format that was asked for (output.go, page.go), and ends with an exit
// code from the table in exit.go, which scripts rely on.
package cli
