// Package agent runs the instances of one node. It registers with the servers, asks them which instances to run, runs
// these, and reports what it sees.
//
// The agent is responsible for processes, checks, restarts, volumes and the forwarding of services (package door).
// Programs continue when the agent stops. Agent.Run owns all goroutines. The agent uses its surroundings through small
// interfaces: Servers calls the servers, Heartbeats sends the node's heartbeats, and Runtime runs the processes. The
// usual Runtime is package driver; simulations have their own. DESIGN.md explains the choices.
package agent
