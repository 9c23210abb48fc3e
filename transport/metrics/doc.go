// Package metrics exports a server's state and events to Prometheus.
//
// It reads gauges from the state when they are scraped, so a series appears and disappears with its object. Counters
// count the events in the state since the process began. Labels are bounded: a label is a node, a job, a group, a
// budget or a member of a closed set, but never an instance.
package metrics
