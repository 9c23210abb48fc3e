// Package agent runs the instances of one node. It registers with the servers, asks them which instances to run, runs
// these, and reports what it sees.
//
// It is responsible for processes, checks, restarts, volumes, the forwarding of services (package door), and for
// letting programs outlive the agent. Agent.Run owns all goroutines. Small interfaces connect the agent to the rest:
// Servers is the agent's protocol, Heartbeats sends the node's heartbeats, and Runtime runs the processes (package
// driver, unless a simulation brings its own). DESIGN.md explains the choices.
package agent
