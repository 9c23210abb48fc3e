// Package door is the process that listens on the exposed ports of a node and forwards connections to backends. The
// agent starts it and sends it the ports and backends over a unix socket. When the agent ends, the door goes on, and
// the next agent finds it there. A door of another version hands its listeners to a new one and finishes its own
// connections.
package door
