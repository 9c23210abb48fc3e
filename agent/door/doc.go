// Package door is the process that listens on the exposed ports of a node and forwards what comes to backends. The
// agent starts it, tells it over a unix socket which ports there are and who serves them, and may end: the door goes
// on. The next agent finds it there. A door of another version hands its listeners to a new one and finishes its own
// connections.
package door
