// Command outspan is the whole product in one binary: server, agent, and the command line that people use. Package
// internal/cli has the command line, internal/daemon what `outspan server run` and `outspan agent run` start.
package main

//go:generate go run . gen-docs ../../docs
