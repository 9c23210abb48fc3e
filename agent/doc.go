// Package agent is the worker of a node. It registers with the servers, asks them which instances to run, runs these,
// and reports what it sees.
//
// It hides processes, checks, restarts, volumes, the forwarding of services (package door) and everything that makes
// work survive the agent itself. Agent.Run owns all of it. What it needs from outside are small interfaces: Servers
// (the agent's protocol), Heartbeats (which servers heard this node), Runtime (the processes; package driver, unless a
// simulation brings its own). DESIGN.md explains the choices.
package agent
