// Package metrics shows a server's state, and what happens in it, to Prometheus.
//
// It reads gauges from the state when they are scraped, so a series appears and disappears with its object. Counters
// follow the events that the state records, from the start of the process. Labels are bounded: a node, a job and group,
// or a member of a closed set; never an instance.
package metrics
