// Package door is the process that listens on the exposed ports of a node and forwards connections to backends. The
// agent starts it and sends it the ports and backends over a unix socket. The door continues when the agent stops, and
// the next agent connects to it. If the next agent has another version, it starts a new door, which takes over the
// listeners. The old door finishes its open connections.
package door
