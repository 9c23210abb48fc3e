// Command outspan is the whole product in one binary: server, agent and command line. Package internal/cli has the
// command line; package internal/daemon has what `outspan server run` and `outspan agent run` start.
package main

//go:generate go run . gen-docs ../../docs
