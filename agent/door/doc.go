// Package door is the process that listens on the exposed ports of a node and forwards connections to backends. The
// agent starts it and sends it the ports and backends over a unix socket. The door continues when the agent stops, and
// the next agent connects to the door. An agent of another version starts a new door, which takes over the listeners.
// The old door exits when its open connections have finished.
package door
