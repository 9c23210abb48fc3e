// Package metrics shows a server's state and what happens in it to Prometheus.
//
// Gauges are read from the state when they are scraped, so a series is there as soon as its object is and goes with it.
// Counters follow the events that the state records, from the start of the process. Labels are bounded: a node, a job
// and group, or a member of a closed set; never an instance.
package metrics
