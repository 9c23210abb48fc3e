// Package agent is the worker of a node: it registers with the servers, asks them what it must run, makes that so, and
// tells them what it sees.
//
// It hides processes, checks, restarts, volumes, the forwarding of services (package door) and everything that makes
// work survive the agent itself. Agent.Run owns all of it. What it needs of the outside are small interfaces: Servers
// (the agent's protocol), Heartbeats (who heard this node), Runtime (the processes; package driver, unless a simulation
// brings its own). DESIGN.md tells what was chosen and why.
package agent
