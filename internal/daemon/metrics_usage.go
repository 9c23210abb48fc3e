package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outspan/outspan/agent"
	"github.com/outspan/outspan/agent/driver"
)

// usage collects what the instances on the node of an agent use, by group: three series for each group
// with instances on the node.
type usage struct {
	read                   func() []agent.GroupUse // nil means that there is nothing to read
	cpu, memory, processes *prometheus.Desc
}

func newUsage(read func() []agent.GroupUse) *usage {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("outspan_group_"+name, help, []string{"job", "group"}, nil)
	}
	return &usage{
		read: read,
		cpu: desc("cpu_seconds_total", "Processor time that instances of a group on this agent's node have used since "+
			"the agent began, without what they used after the last scrape before their end."),
		memory: desc("memory_bytes", "Memory that instances of a group on this agent's node use, without page cache that "+
			"the kernel can drop."),
		processes: desc("processes", "Processes of the instances of a group on this agent's node."),
	}
}

// Describe implements prometheus.Collector.
func (u *usage) Describe(out chan<- *prometheus.Desc) {
	for _, d := range [...]*prometheus.Desc{u.cpu, u.memory, u.processes} {
		out <- d
	}
}

// Collect implements prometheus.Collector. What the kernel does not tell has no series.
func (u *usage) Collect(out chan<- prometheus.Metric) {
	if u.read == nil {
		return
	}
	for _, g := range u.read() {
		job, group := g.Group.Split()
		send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
			out <- prometheus.MustNewConstMetric(d, kind, v, string(job), group)
		}
		if g.CPU != driver.Unknown {
			send(u.cpu, prometheus.CounterValue, g.CPU.Seconds())
		}
		if g.MemoryBytes != driver.Unknown {
			send(u.memory, prometheus.GaugeValue, float64(g.MemoryBytes))
		}
		send(u.processes, prometheus.GaugeValue, float64(g.Processes))
	}
}
